"""Which block goes first, against a plain model, and the shelf's books."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from worker.kv.shelf import Shelf

DIGESTS = [bytes([index]) * 16 for index in range(10)]
PARENTS: dict[bytes, bytes | None] = {
    DIGESTS[index]: DIGESTS[(index - 1) // 2] if index else None for index in range(10)
}
digests = st.sampled_from(DIGESTS)


class ShelfBooks(RuleBasedStateMachine):
    """A list in order of use, over a tree whose blocks come and go in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.shelf = Shelf()
        self.used: list[bytes] = []

    @rule(digest=digests)
    def add_or_touch(self, digest: bytes) -> None:
        if digest in self.used:
            self.used.remove(digest)
            self.shelf.touch(digest)
        else:
            self.shelf.add(digest, PARENTS[digest])
        self.used.append(digest)

    @rule(digest=digests)
    def remove(self, digest: bytes) -> None:
        if digest in self.used:
            self.used.remove(digest)
            self.shelf.remove(digest)

    @rule(spare=st.none() | digests)
    def evict(self, spare: bytes | None) -> None:
        parents = {PARENTS[digest] for digest in self.used}
        first = next((digest for digest in self.used if digest not in parents and digest != spare), None)
        assert self.shelf.evict(spare) == first
        if first:
            self.used.remove(first)

    @invariant()
    def books_balance(self) -> None:
        self.shelf.check()
        assert len(self.shelf) == len(self.used)
        assert all((digest in self.shelf) == (digest in self.used) for digest in DIGESTS)


ShelfBooks.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestShelfBooks = ShelfBooks.TestCase


def test_a_root_that_was_written_first_goes_last() -> None:
    shelf = Shelf()
    for digest, parent in [(b"a", None), (b"b", b"a"), (b"c", b"b")]:
        shelf.add(digest, parent)
    assert [shelf.evict(None) for _ in range(4)] == [b"c", b"b", b"a", None]


def test_the_parent_of_what_needs_room_stays_and_is_offered_again() -> None:
    shelf = Shelf()
    shelf.add(b"a", None)
    assert shelf.evict(spare=b"a") is None
    assert shelf.evict(spare=None) == b"a"


def test_a_block_that_comes_again_has_another_place() -> None:
    shelf = Shelf()
    shelf.add(b"a", None)
    before = shelf.get(b"a")
    shelf.remove(b"a")
    assert shelf.get(b"a") is None
    shelf.add(b"a", None)
    assert shelf.get(b"a") is not before


def test_many_touches_leave_few_candidates() -> None:
    shelf = Shelf()
    for digest in DIGESTS:
        shelf.add(digest, None)
    for turn in range(10_000):
        shelf.touch(DIGESTS[turn % 3])
    assert len(shelf._candidates) <= 2 * len(shelf) + 65
    assert shelf.evict(None) == DIGESTS[3]


def test_a_block_is_added_once() -> None:
    shelf = Shelf()
    shelf.add(b"a", None)
    with pytest.raises(RuntimeError, match="twice"):
        shelf.add(b"a", None)


def test_books_that_lie_are_found() -> None:
    shelf = Shelf()
    shelf.add(b"a", None)
    shelf._candidates.clear()
    with pytest.raises(RuntimeError, match="not offered"):
        shelf.check()
    shelf._awaited[b"z"] = 1
    with pytest.raises(RuntimeError, match="child count"):
        shelf.check()
