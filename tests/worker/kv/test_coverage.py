"""Which leased blocks share what is known of them: those that have fared alike."""

from cacheplane.wire import Tier
from tests.worker.kv.books import books, lease, tiered_books
from worker.kv.leases import LeaseBook


def shares(book: LeaseBook[str]) -> set[str]:
    """The blocks of each cover, as a word."""
    book.check()
    return {"".join(sorted(blocks)) for blocks in book._coverage.covers().values()}


def test_the_blocks_of_a_sequence_share_a_cover_however_many_leases_they_are_under() -> None:
    book, _ = books()
    book.grant("acme", "one", lease("abcd"))
    book.released("abcd")
    assert shares(book) == {"abcd"}
    book.used("abcd")
    book.grant("acme", "two", lease("abcd", priority=90))
    book.grant("globex", "one", lease("abcd", ttl=20))
    book.released("abcd")
    assert shares(book) == {"abcd"}
    assert len(book._timers) <= 3


def test_what_fares_differently_is_parted_from_the_rest() -> None:
    book, clock = books()
    book.grant("acme", "one", lease("abcd", ttl=10))
    book.released("abcd")
    clock.now = 5
    book.used("ab")
    book.grant("acme", "two", lease("a", priority=90))
    book.released("ab")
    assert shares(book) == {"a", "b", "cd"}
    clock.now = 10
    assert [book.priority(block) for block in "abcd"] == [90, 80, 35, 35]
    assert shares(book) == {"a", "b"}


def test_the_turns_of_a_session_come_together_under_its_last_lease() -> None:
    book, _ = books()
    for turn in ("ab", "abcd", "abcdef"):
        book.used(turn)
        book.grant("acme", "one", lease(turn))
        book.released(turn)
        assert shares(book) == {turn}


def test_blocks_that_are_moved_one_after_another_come_together_again() -> None:
    book, where = tiered_books(budget=(8, 8, 8))
    book.grant("acme", "one", lease("abcd"))
    book.grant("globex", "one", lease("abcd"))
    book.released("abcd")
    for tier, moved in [(Tier.HOST, "dcb"), (Tier.DISK, "dc"), (Tier.HOST, "d")]:
        for block in moved:
            where[block] = tier
            book.moved(block)
    assert shares(book) == {"a", "b", "c", "d"}
    for block in "cd":
        where[block] = Tier.DEVICE
        book.moved(block)
    assert shares(book) == {"a", "b", "c", "d"}
    where["a"] = Tier.HOST
    book.moved("a")
    assert shares(book) == {"ab", "c", "d"}


def test_a_lease_forgets_the_covers_that_its_blocks_have_left() -> None:
    book, where = tiered_books(budget=(8, 8, 8))
    book.grant("acme", "one", lease("abcd"))
    for turn in range(100):
        for block in "dcb":
            where[block] = Tier.HOST if turn % 2 else Tier.DISK
            book.moved(block)
    (term,) = book._accounts.by_tag["acme"].sessions["one"].terms
    assert len(term.covers) == len(shares(book)) == 2
    assert all(len(cover.listed) <= 2 * cover.size + 8 for cover in term.covers)
