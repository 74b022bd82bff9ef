"""The books of the block pool, and what it says to misuse."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from worker.kv.pool import BlockPool, BlockState

BLOCKS = 5


class PoolBooks(RuleBasedStateMachine):
    """A block is free, filling or ready, as a set of three says."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(BLOCKS)
        self.filling: list[int] = []
        self.made_ready: list[int] = []

    @rule()
    def take(self) -> None:
        block = self.pool.take()
        if len(self.filling) + len(self.made_ready) == BLOCKS:
            assert block is None
        else:
            assert block is not None
            assert block not in self.filling + self.made_ready
            self.filling.append(block)

    @precondition(lambda self: self.filling)
    @rule(data=st.data())
    def ready(self, data: st.DataObject) -> None:
        block = data.draw(st.sampled_from(self.filling))
        self.pool.ready(block)
        self.filling.remove(block)
        self.made_ready.append(block)

    @precondition(lambda self: self.made_ready)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        block = data.draw(st.sampled_from(self.made_ready))
        self.pool.give_back(block)
        self.made_ready.remove(block)

    @rule(block=st.integers(0, BLOCKS - 1))
    def misuse_changes_nothing(self, block: int) -> None:
        if block not in self.filling:
            with pytest.raises(RuntimeError, match="not FILLING"):
                self.pool.ready(block)
        if block not in self.made_ready:
            with pytest.raises(RuntimeError, match="not READY"):
                self.pool.give_back(block)

    @invariant()
    def books_balance(self) -> None:
        self.pool.check()
        assert self.pool.free == BLOCKS - len(self.filling) - len(self.made_ready)
        for block in range(BLOCKS):
            state = BlockState.FILLING if block in self.filling else BlockState.READY
            assert self.pool.state(block) == (state if block in self.filling + self.made_ready else BlockState.FREE)


PoolBooks.TestCase.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)
TestPoolBooks = PoolBooks.TestCase


def test_a_pool_has_at_least_one_block() -> None:
    with pytest.raises(ValueError, match="at least one"):
        BlockPool(0)


def test_a_free_list_that_lies_is_found() -> None:
    pool = BlockPool(2)
    pool._free.append(0)
    with pytest.raises(RuntimeError, match="free list"):
        pool.check()
