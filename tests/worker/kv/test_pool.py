"""The books of the block pool, and what it says to misuse."""

from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from worker.kv.pool import BlockPool, BlockState

BLOCKS = 5
FREE, FILLING, COPYING_IN, READY, COPYING_OUT = BlockState
MOVES: dict[str, tuple[BlockState, BlockState]] = {
    "ready": (FILLING, READY),
    "give_back": (READY, FREE),
    "copying_in": (FILLING, COPYING_IN),
    "copied_in": (COPYING_IN, FILLING),
    "copying_out": (READY, COPYING_OUT),
    "copied_out": (COPYING_OUT, READY),
}


class PoolBooks(RuleBasedStateMachine):
    """Every block moves from state to state as a table says, and is held and dropped meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(BLOCKS)
        self.freed: list[int] = []
        self.pool.on_free = self.freed.append
        self.states = dict.fromkeys(range(BLOCKS), FREE)
        self.held: Counter[int] = Counter()

    @rule()
    def take(self) -> None:
        block = self.pool.take()
        if block is None:
            assert FREE not in self.states.values()
            return
        assert self.states[block] == FREE
        self.states[block] = FILLING
        self.hold(block)

    @rule(block=st.integers(0, BLOCKS - 1))
    def hold(self, block: int) -> None:
        if self.states[block] in (FREE, COPYING_IN):
            with pytest.raises(RuntimeError, match="nothing to hold"):
                self.pool.hold(block)
            return
        self.pool.hold(block)
        self.held[block] += 1

    @rule(block=st.integers(0, BLOCKS - 1))
    def drop(self, block: int) -> None:
        if self.states[block] == COPYING_IN or not self.held[block]:
            with pytest.raises(RuntimeError, match="holders"):
                self.pool.drop(block)
            return
        self.pool.drop(block)
        self.held[block] -= 1
        if self.states[block] == FILLING and not self.held[block]:
            self.states[block] = FREE
            assert self.freed.pop() == block

    @rule(block=st.integers(0, BLOCKS - 1), move=st.sampled_from(sorted(MOVES)))
    def move(self, block: int, move: str) -> None:
        before, after = MOVES[move]
        call: Callable[[int], None] = getattr(self.pool, move)
        most = {"ready": 1, "give_back": 0}.get(move, BLOCKS * 10)
        if self.states[block] != before or self.held[block] > most:
            with pytest.raises(RuntimeError, match=f"block {block} is"):
                call(block)
            return
        call(block)
        self.states[block] = after
        if after == FREE:
            assert self.freed.pop() == block

    @precondition(lambda self: any(self.held.values()))
    @rule()
    def the_sequences_end(self) -> None:
        for block in [block for block, state in self.states.items() if state == COPYING_IN]:
            self.move(block, "copied_in")
        for block in list(self.held.elements()):
            self.drop(block)

    @invariant()
    def the_books_balance(self) -> None:
        trees = [block for block, state in self.states.items() if state in (READY, COPYING_OUT)]
        held = +self.held
        self.pool.check(trees, held)
        assert self.pool.free == list(self.states.values()).count(FREE)
        assert self.pool.available == BLOCKS - len(held)
        for block, state in self.states.items():
            assert self.pool.state(block) == state
            assert self.pool.writable(block) == (state == FILLING and self.held[block] == 1)


PoolBooks.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestPoolBooks = PoolBooks.TestCase


def test_a_pool_has_at_least_one_block() -> None:
    with pytest.raises(ValueError, match="at least one"):
        BlockPool(0)


def test_books_that_lie_are_found() -> None:
    pool = BlockPool(3)
    pool.take()
    with pytest.raises(RuntimeError, match="nobody holds it"):
        pool.check([], {})
    pool.hold(0)
    with pytest.raises(RuntimeError, match="tables do not match"):
        pool.check([], {1: 1})
    with pytest.raises(RuntimeError, match="in the tree and blocks in use differ"):
        pool.check([2], {0: 1})
    pool._free.append(0)
    with pytest.raises(RuntimeError, match="free list"):
        pool.check([], {0: 1})
