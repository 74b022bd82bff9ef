"""Which block goes first, against a plain model, and the shelf's books."""

from bisect import bisect

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from worker.kv.shelf import Place, Shelf

DIGESTS = [bytes([index]) * 16 for index in range(10)]
PARENTS: dict[bytes, bytes | None] = {
    DIGESTS[index]: DIGESTS[(index - 1) // 2] if index else None for index in range(10)
}
digests, priorities = st.sampled_from(DIGESTS), st.sampled_from([10, 35, 90])


class ShelfBooks(RuleBasedStateMachine):
    """A list in order of use, with a priority each, over a tree whose blocks come and go in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.shelf = Shelf()
        self.used: list[bytes] = []
        self.priorities: dict[bytes, int] = {}

    @rule(digest=digests, priority=priorities)
    def add_or_touch(self, digest: bytes, priority: int) -> None:
        if digest in self.used:
            self.used.remove(digest)
            self.shelf.touch(digest)
        else:
            self.shelf.add(digest, PARENTS[digest], priority)
            self.priorities[digest] = priority
        self.used.append(digest)

    @rule(digest=digests, priority=priorities)
    def rank(self, digest: bytes, priority: int) -> None:
        if digest in self.used:
            self.shelf.rank(digest, priority)
            self.priorities[digest] = priority

    @rule(digest=digests)
    def give_up(self, digest: bytes) -> None:
        """Of several that were given up any may go first; here it is the one with the lowest digest."""
        if digest in self.used:
            self.shelf.give_up(digest)
            self.used.remove(digest)
            given_up = [one for one in self.used if self.place(one).used == 0]
            self.used.insert(bisect(given_up, digest), digest)

    @rule(digest=digests)
    def remove(self, digest: bytes) -> None:
        if digest in self.used:
            self.used.remove(digest)
            self.shelf.remove(digest)

    @rule(spare=st.none() | digests, most=st.sampled_from([100, 100, 35, 10, 9]))
    def evict(self, spare: bytes | None, most: int) -> None:
        parents = {PARENTS[digest] for digest in self.used}
        free = [digest for digest in self.used if digest not in parents and digest != spare]
        first = min(free, key=self.priorities.__getitem__, default=None)
        if first and self.priorities[first] > most:
            first = None
        assert self.shelf.evict(spare, most) == first
        if first:
            self.used.remove(first)

    def place(self, digest: bytes) -> Place:
        place = self.shelf.get(digest)
        assert place is not None
        return place

    @invariant()
    def books_balance(self) -> None:
        self.shelf.check()
        assert len(self.shelf) == len(self.used)
        assert all((digest in self.shelf) == (digest in self.used) for digest in DIGESTS)
        assert all(self.place(digest).priority == self.priorities[digest] for digest in self.used)
        awaited = {PARENTS[digest] for digest in self.used} - {None, *self.used}
        assert {digest for digest in DIGESTS if self.shelf.awaits(digest)} == awaited


ShelfBooks.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestShelfBooks = ShelfBooks.TestCase


def test_a_root_that_was_written_first_goes_last() -> None:
    shelf = Shelf()
    for digest, parent in [(b"a", None), (b"b", b"a"), (b"c", b"b")]:
        shelf.add(digest, parent, 35)
    assert [shelf.evict(None) for _ in range(4)] == [b"c", b"b", b"a", None]


def test_the_parent_of_what_needs_room_stays_and_is_offered_again() -> None:
    shelf = Shelf()
    shelf.add(b"a", None, 35)
    assert shelf.evict(spare=b"a") is None
    assert shelf.evict(spare=None) == b"a"


def test_a_block_that_comes_again_has_another_place() -> None:
    shelf = Shelf()
    shelf.add(b"a", None, 35)
    before = shelf.get(b"a")
    shelf.remove(b"a")
    assert shelf.get(b"a") is None
    shelf.add(b"a", None, 35)
    assert shelf.get(b"a") is not before


def test_many_touches_leave_few_candidates() -> None:
    shelf = Shelf()
    for digest in DIGESTS:
        shelf.add(digest, None, 35)
    for turn in range(10_000):
        shelf.touch(DIGESTS[turn % 3])
    assert len(shelf._candidates) <= 2 * len(shelf) + 65
    assert shelf.evict(None) == DIGESTS[3]


def test_a_block_is_added_once() -> None:
    shelf = Shelf()
    shelf.add(b"a", None, 35)
    with pytest.raises(RuntimeError, match="twice"):
        shelf.add(b"a", None, 35)


def test_books_that_lie_are_found() -> None:
    shelf = Shelf()
    shelf.add(b"a", None, 35)
    shelf._candidates.clear()
    with pytest.raises(RuntimeError, match="not offered"):
        shelf.check()
    shelf._awaited[b"z"] = 1
    with pytest.raises(RuntimeError, match="child count"):
        shelf.check()
