"""Retention leases as transcripts: what is granted, what time and use make of it, and what is counted."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from cacheplane.wire import Tier
from tests.worker.kv.books import books, cover_of, lease, tiered_books
from worker.kv.accounts import OTHER, Tally
from worker.kv.cover import Crowd
from worker.kv.leases import LeaseBook
from worker.kv.ranges import Granted

DEFAULT = 35


def priorities(book: LeaseBook[str], blocks: Sequence[str]) -> list[int]:
    return [book.priority(block) for block in blocks]


def test_time_to_live_runs_from_the_release_of_the_block() -> None:
    book, clock = books()
    book.grant("acme", "one", lease("a", ttl=10))
    clock.now = 1000
    assert book.priority("a") == 80
    book.released("a")
    clock.now = 1009.9
    assert book.priority("a") == 80
    clock.now = 1010
    assert book.priority("a") == DEFAULT


def test_a_reuse_stops_the_time_and_the_next_release_starts_it_anew() -> None:
    book, clock = books()
    book.grant("acme", "one", lease("a", ttl=10))
    book.released("a")
    clock.now = 9
    book.used("a")
    clock.now = 100
    book.released("a")
    clock.now = 109
    book.released("a")
    assert book.priority("a") == 80
    clock.now = 110
    assert book.priority("a") == DEFAULT


def test_a_grant_says_that_its_blocks_are_in_use() -> None:
    book, clock = books()
    book.grant("acme", "one", lease("a", ttl=10))
    book.released("a")
    clock.now = 9
    book.grant("globex", "one", lease("a", priority=50, ttl=20))
    clock.now = 100
    assert book.priority("a") == 80
    book.released("a")
    clock.now = 110
    assert book.priority("a") == 50


def test_the_highest_lease_counts_whoever_writes_last() -> None:
    book, clock = books()
    book.grant("acme", "one", lease("a", priority=80, ttl=10))
    book.grant("globex", "one", lease("a", priority=50, ttl=20))
    book.released("a")
    assert book.priority("a") == 80
    clock.now = 10
    assert book.priority("a") == 50
    clock.now = 20
    assert book.priority("a") == DEFAULT


def test_a_block_below_the_default_stays_there_after_its_lease() -> None:
    book, clock = books()
    book.grant("acme", "one", lease("a", priority=10, ttl=10))
    book.released("a")
    clock.now = 10
    assert book.priority("a") == 10
    assert book.tallies()["acme"].live == 0


@pytest.mark.parametrize(
    "lift",
    [
        lambda book: book.used("a"),
        lambda book: book.grant("globex", "", lease("a", priority=DEFAULT)),
        lambda book: book.forgotten("a"),
    ],
    ids=["reuse", "lease", "forgotten"],
)
def test_only_a_reuse_or_another_lease_lifts_a_block_to_the_default(lift: Callable[[LeaseBook[str]], None]) -> None:
    book, clock = books()
    book.grant("acme", "one", lease("a", priority=10, ttl=10))
    book.released("a")
    clock.now = 10
    assert book.drop_session("acme", "one") == book.drop_blocks("acme", "a") == 0
    assert book.priority("a") == 10
    lift(book)
    assert book.priority("a") == DEFAULT


def test_the_end_of_a_session_does_not_raise_what_it_had_lowered() -> None:
    book, _ = books()
    book.grant("acme", "one", lease("a", priority=10) + lease("b", priority=80))
    assert book.drop_session("acme", "one") == 2
    assert priorities(book, "ab") == [10, DEFAULT]


def test_one_owner_cannot_bury_what_others_come_back_to() -> None:
    book, _ = books()
    book.grant("acme", "one", lease("a", priority=10, ttl=math.inf))
    book.released("a")
    assert book.priority("a") == 10
    book.used("a")
    book.released("a")
    assert book.priority("a") == DEFAULT
    assert book.tallies()["acme"].live == 1


def test_a_lease_after_the_reuse_lowers_the_block_again() -> None:
    book, _ = books()
    book.grant("acme", "one", lease("a", priority=10))
    book.used("a")
    assert book.priority("a") == DEFAULT
    book.grant("globex", "one", lease("a", priority=20))
    assert book.priority("a") == 20


def test_of_two_leases_that_end_together_the_higher_tells_where_the_block_falls() -> None:
    book, clock = books()
    book.grant("acme", "one", lease("a", priority=80, ttl=10))
    book.grant("globex", "one", lease("a", priority=10, ttl=10))
    book.released("a")
    clock.now = 10
    assert book.priority("a") == DEFAULT


def test_what_expired_unseen_falls_as_if_it_had_been_watched() -> None:
    watched, clock = books()
    unseen, other = books()
    for book in (watched, unseen):
        book.grant("acme", "one", lease("a", priority=80, ttl=10))
        book.grant("globex", "one", lease("a", priority=20, ttl=20))
        book.released("a")
    for clock.now in range(30):
        watched.priority("a")
    other.now = 29
    assert watched.priority("a") == unseen.priority("a") == 20


def test_the_next_turn_takes_the_place_of_the_last() -> None:
    book, _ = books()
    book.grant("acme", "one", lease("abc", priority=80))
    book.grant("acme", "one", lease("bcd", priority=60))
    assert priorities(book, "abcd") == [DEFAULT, 60, 60, 60]
    assert sorted(book.due()) == ["b", "c", "d"]
    assert book.tallies()["acme"] == Tally(granted=6, kept=3, live=3, leased=[3, 0, 0])


def test_leases_without_a_session_stand_beside_each_other() -> None:
    book, _ = books()
    book.grant("acme", "", lease("ab", priority=80))
    book.grant("acme", "", lease("bc", priority=60))
    assert priorities(book, "abc") == [80, 80, 60]
    assert book.drop_session("acme", "") == 0
    assert book.drop_blocks("acme", "b") == 1
    assert priorities(book, "abc") == [80, DEFAULT, 60]


def test_the_lease_of_another_owner_stays() -> None:
    book, _ = books()
    book.grant("acme", "one", lease("a", priority=80))
    book.grant("globex", "one", lease("a", priority=60))
    book.drop_session("acme", "one")
    assert book.priority("a") == 60
    book.drop_blocks("acme", "a")
    assert book.priority("a") == 60


def test_the_shallowest_blocks_come_first_and_nothing_after_a_gap() -> None:
    book, _ = books(budget=(3, 0, 0))
    assert book.grant("acme", "one", lease("d", priority=90)) == Granted(1, 0)
    assert book.grant("acme", "two", lease("ab") + lease("cd")) == Granted(2, 2)
    assert priorities(book, "abcd") == [80, 80, DEFAULT, 90]
    assert book.tallies()["acme"] == Tally(granted=3, refused=[2, 0, 0], live=3, leased=[3, 0, 0])


def test_a_tag_that_wants_more_than_its_budget_gives_up_its_oldest_lease_whole() -> None:
    """Refusing the newest instead kept what had gone quiet, and lowered the hit rate of the sessions at work."""
    book, _ = books(budget=(4, 0, 0))
    book.grant("acme", "one", lease("ab"))
    book.grant("acme", "two", lease("cd"))
    assert book.grant("acme", "three", lease("e")) == Granted(1, 0)
    assert priorities(book, "abcde") == [DEFAULT, DEFAULT, 80, 80, 80]
    assert book.tallies()["acme"] == Tally(granted=5, displaced=2, live=3, leased=[3, 0, 0])
    assert sorted(book.due()) == ["c", "d", "e"]


def test_the_lowest_lease_is_given_up_first_and_a_higher_one_never_is() -> None:
    book, _ = books(budget=(2, 0, 0))
    book.grant("acme", "one", lease("a", priority=90))
    book.grant("acme", "two", lease("b", priority=50))
    assert book.grant("acme", "three", lease("c", priority=60)) == Granted(1, 0)
    assert book.grant("acme", "four", lease("d", priority=20)) == Granted(0, 1)
    assert priorities(book, "abcd") == [90, DEFAULT, 60, DEFAULT]


def test_a_tag_gives_up_no_lease_of_another() -> None:
    book, _ = books(budget=(2, 0, 0))
    book.grant("globex", "one", lease("ab"))
    assert book.grant("acme", "one", lease("cde")) == Granted(2, 1)
    assert priorities(book, "abcde") == [80, 80, 80, 80, DEFAULT]


def test_what_is_given_up_after_a_reuse_was_kept() -> None:
    book, _ = books(budget=(2, 0, 0))
    book.grant("acme", "one", lease("ab"))
    book.used("a")
    book.grant("acme", "two", lease("c"))
    assert book.tallies()["acme"] == Tally(granted=3, kept=1, displaced=1, live=1, leased=[1, 0, 0])


def test_a_block_is_charged_to_the_tier_where_it_is() -> None:
    book, where = tiered_books(budget=(2, 1, 1))
    book.grant("acme", "one", lease("ab"))
    where["b"] = Tier.HOST
    book.moved("b")
    assert book.tallies()["acme"].leased == [1, 1, 0]
    assert book.grant("acme", "two", lease("c")) == Granted(1, 0)
    where["b"] = Tier.DISK
    book.moved("b")
    assert book.tallies()["acme"] == Tally(granted=3, live=3, leased=[2, 0, 1])
    where["x"] = Tier.DISK
    assert book.grant("acme", "three", lease("x", priority=70)) == Granted(0, 1)
    assert book.tallies()["acme"].refused == [0, 0, 1]
    book.check()


def test_what_comes_down_to_a_full_budget_takes_the_place_of_an_older_lease() -> None:
    book, where = tiered_books(budget=(4, 1, 0))
    book.grant("acme", "one", lease("ab"))
    book.grant("acme", "two", lease("cd"))
    for block in "bd":
        where[block] = Tier.HOST
        book.moved(block)
    assert priorities(book, "abcd") == [DEFAULT, DEFAULT, 80, 80]
    where["c"] = Tier.HOST
    book.moved("c")
    assert priorities(book, "cd") == [DEFAULT, 80]
    assert book.tallies()["acme"] == Tally(granted=4, displaced=3, live=1, leased=[0, 1, 0])
    book.check()


def test_a_block_counts_once_in_the_budget() -> None:
    book, _ = books(budget=(2, 0, 0))
    for session in ("one", "two", "three"):
        assert book.grant("acme", session, lease("ab")) == Granted(2, 0)
    assert book.tallies()["acme"].leased == [2, 0, 0]


def test_the_last_lease_of_a_session_makes_room_for_the_next() -> None:
    book, _ = books(budget=(2, 0, 0))
    book.grant("acme", "one", lease("cd"))
    assert book.grant("acme", "one", lease("abcd")) == Granted(2, 2)
    assert priorities(book, "abcd") == [80, 80, DEFAULT, DEFAULT]


def test_a_tag_without_a_budget_is_refused_and_leaves_nothing() -> None:
    book, _ = books(budget=(0, 0, 0))
    assert book.grant("acme", "one", lease("ab")) == Granted(0, 2)
    assert len(book) == 0
    assert not book._accounts.by_tag


def test_a_block_named_twice_belongs_to_the_first_range() -> None:
    book, _ = books()
    assert book.grant("acme", "one", lease("ab", priority=80) + lease("bc", priority=90)) == Granted(3, 0)
    assert priorities(book, "abc") == [80, 80, 90]


def test_a_lease_is_broken_when_its_block_leaves_before_it_served() -> None:
    book, clock = books()
    book.used("abc")
    book.grant("acme", "one", lease("abc"))
    book.released("abc")
    book.forgotten("a")
    book.used("b")
    book.released("b")
    book.forgotten("b")
    clock.now = 10
    book.forgotten("c")
    assert book.tallies()["acme"] == Tally(granted=3, kept=2, broken=1)


def test_the_strongest_leases_of_a_tag_on_a_block_are_remembered() -> None:
    book, _ = books(claims_per_block=2)
    book.grant("acme", "one", lease("a", priority=90))
    book.grant("acme", "two", lease("a", priority=50))
    book.grant("acme", "three", lease("a", priority=70))
    assert book.tallies()["acme"] == Tally(granted=3, kept=1, live=2, leased=[1, 0, 0])
    book.drop_session("acme", "one")
    assert book.priority("a") == 70
    book.drop_session("acme", "three")
    assert book.priority("a") == DEFAULT


def test_tags_beyond_the_cap_share_their_counters_but_not_their_budget() -> None:
    book, _ = books(budget=(1, 0, 0), max_tags=1)
    for tag in ("acme", "globex", "initech"):
        assert book.grant(tag, "one", lease("ab")) == Granted(1, 1)
    assert book.tallies() == {
        "acme": Tally(granted=1, refused=[1, 0, 0], live=1, leased=[1, 0, 0]),
        OTHER: Tally(granted=2, refused=[2, 0, 0], live=2, leased=[2, 0, 0]),
    }


def test_sessions_that_end_without_a_word_do_not_pile_up_on_a_block_in_use() -> None:
    book, _ = books(claims_per_block=4)
    for turn in range(1000):
        book.grant("acme", f"session {turn}", lease("a"))
    assert book.tallies()["acme"].live == len(book._accounts.by_tag["acme"].sessions) == 4
    crowd = cover_of(book, "a").terms
    assert isinstance(crowd, Crowd)
    assert len(crowd._queue) <= 8
    book.check()


def test_blocks_that_come_and_go_before_their_time_leave_no_timers() -> None:
    book, clock = books()
    for turn in range(1000):
        clock.now = turn
        book.used("a")
        book.grant("acme", "one", lease("a", ttl=10_000))
        book.released("a")
    assert len(book._timers) < 100
    book.check()


@pytest.mark.parametrize(
    "options", [{"budget": (1, -1, 1)}, {"default_priority": 101}, {"claims_per_block": 0}, {"max_tags": -1}]
)
def test_a_book_is_not_opened_with_figures_that_mean_nothing(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        books(**options)
