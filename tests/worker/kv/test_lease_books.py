"""Books of leases that do not balance: every way of lying is found."""

import math
from collections.abc import Callable

import pytest

from cacheplane.wire import Tier
from tests.worker.kv.books import books, cover_of, lease
from worker.kv.accounts import ByTier
from worker.kv.cover import Crowd
from worker.kv.leases import LeaseBook


def miscount_live(book: LeaseBook[str]) -> None:
    book.tallies()["acme"].live += 1


def miscount_granted(book: LeaseBook[str]) -> None:
    book.tallies()["acme"].granted += 1


def exceed(book: LeaseBook[str]) -> None:
    book._accounts.by_tag["acme"]._budget = ByTier()


def lose_session(book: LeaseBook[str]) -> None:
    book._accounts.by_tag["acme"].sessions.clear()


def lose_cover(book: LeaseBook[str]) -> None:
    book._coverage._covers.clear()


def lose_claim(book: LeaseBook[str]) -> None:
    cover_of(book, "a").terms = None


def lose_place(book: LeaseBook[str]) -> None:
    book.grant("globex", "one", lease("a", ttl=20))
    crowd = cover_of(book, "a").terms
    assert isinstance(crowd, Crowd)
    crowd._queue.clear()


def misplace(book: LeaseBook[str]) -> None:
    cover_of(book, "a").tier = Tier.HOST


def mischarge(book: LeaseBook[str]) -> None:
    account, tally = book._accounts.by_tag["acme"], book.tallies()["acme"]
    account.leased[:] = tally.leased[:] = [2, 0, 0]


def unsettle(book: LeaseBook[str]) -> None:
    cover_of(book, "a").priority = 50


def lose_timer(book: LeaseBook[str]) -> None:
    cover_of(book, "a").due = math.inf


def miscount_blocks(book: LeaseBook[str]) -> None:
    cover_of(book, "a").listed.clear()


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (miscount_live, "differs from the accounts"),
        (miscount_granted, "displaced, broken and live"),
        (exceed, "over its budget"),
        (lose_session, "not its last"),
        (lose_cover, "does not know"),
        (lose_claim, "as the accounts say"),
        (misplace, "was not told"),
        (mischarge, "charged to other tiers"),
        (lose_place, "does not wait"),
        (unsettle, "not settled"),
        (lose_timer, "no timer rings"),
        (miscount_blocks, "other blocks than it says"),
    ],
)
def test_books_that_lie_are_found(damage: Callable[[LeaseBook[str]], None], complaint: str) -> None:
    book, _ = books()
    book.grant("acme", "one", lease("a"))
    book.released("a")
    book.check()
    damage(book)
    with pytest.raises(RuntimeError, match=complaint):
        book.check()
