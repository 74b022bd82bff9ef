"""The host tier's blocks against a plain model, and what it says to misuse."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.worker.kv.blocks import BLOCK, SHAPE, kv, same_bits
from worker.kv.host import HostState, HostTier
from worker.kv.shape import KVShape

BLOCKS = 4
BYTES = SHAPE.bytes_per_token * BLOCK


class HostBooks(RuleBasedStateMachine):
    """A dictionary of blocks in use: their state, seed and readers; freed blocks are spoiled at once."""

    def __init__(self) -> None:
        super().__init__()
        self.host = HostTier(SHAPE, BLOCK, BLOCKS * BYTES + BYTES - 1)
        self.filling: list[int] = []
        self.seeds: dict[int, int] = {}
        self.readers: dict[int, int] = {}

    @rule()
    def take(self) -> None:
        index = self.host.take()
        if len(self.filling) + len(self.seeds) == BLOCKS:
            assert index is None
        else:
            assert index is not None
            assert index not in self.filling
            assert index not in self.seeds
            self.filling.append(index)

    @precondition(lambda self: self.filling)
    @rule(data=st.data(), seed=st.integers(0, 2**31))
    def write(self, data: st.DataObject, seed: int) -> None:
        index = data.draw(st.sampled_from(self.filling))
        self.host.write(index, kv(seed))
        self.host.ready(index)
        self.filling.remove(index)
        self.seeds[index], self.readers[index] = seed, 0

    @precondition(lambda self: self.filling)
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        index = data.draw(st.sampled_from(self.filling))
        self.host.give_back(index)
        self.filling.remove(index)

    @precondition(lambda self: self.seeds)
    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        index = data.draw(st.sampled_from(sorted(self.seeds)))
        assert same_bits(self.host.read(index), kv(self.seeds[index]))
        self.readers[index] += 1

    @rule(index=st.integers(0, BLOCKS - 1))
    def done(self, index: int) -> None:
        if self.readers.get(index):
            self.host.done(index)
            self.readers[index] -= 1
        else:
            with pytest.raises(RuntimeError, match="not READING"):
                self.host.done(index)

    @rule(index=st.integers(0, BLOCKS - 1))
    def give_back(self, index: int) -> None:
        if self.readers.get(index) == 0:
            self.host.give_back(index)
            self.host.spoil(index)
            del self.seeds[index], self.readers[index]
        elif index not in self.filling:
            with pytest.raises(RuntimeError, match="not READY or FILLING"):
                self.host.give_back(index)

    @rule(index=st.integers(0, BLOCKS - 1))
    def misuse_changes_nothing(self, index: int) -> None:
        if index not in self.filling:
            with pytest.raises(RuntimeError, match="not FILLING"):
                self.host.write(index, kv(0))
            with pytest.raises(RuntimeError, match="not FILLING"):
                self.host.ready(index)
        if index in self.seeds:
            with pytest.raises(RuntimeError, match="not FREE or FILLING"):
                self.host.spoil(index)
        else:
            with pytest.raises(RuntimeError, match="not READY or READING"):
                self.host.read(index)

    @invariant()
    def books_balance(self) -> None:
        self.host.check()
        used = len(self.filling) + len(self.seeds)
        assert (self.host.free, self.host.bytes_used) == (BLOCKS - used, used * BYTES)
        for index, readers in self.readers.items():
            assert self.host.state(index) == (HostState.READING if readers else HostState.READY)


HostBooks.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestHostBooks = HostBooks.TestCase


@given(st.sampled_from([torch.float32, torch.bfloat16]), st.integers(0, 2**31))
def test_a_block_comes_back_bit_for_bit_and_its_neighbours_stay(dtype: torch.dtype, seed: int) -> None:
    shape = KVShape(3, 2, 4, dtype)
    host = HostTier(shape, BLOCK, 3 * shape.bytes_per_token * BLOCK)
    indices = [host.take() for _ in range(3)]
    for offset, index in enumerate(indices):
        assert index is not None
        host.write(index, kv(seed + offset, shape))
        host.ready(index)
    for offset, index in enumerate(indices):
        assert index is not None
        assert same_bits(host.read(index), kv(seed + offset, shape))


def test_a_write_owns_its_copy() -> None:
    host = HostTier(SHAPE, BLOCK, BYTES)
    index = host.take()
    assert index is not None
    keys, values = kv(1)
    host.write(index, (keys, values))
    keys.zero_()
    values.zero_()
    host.ready(index)
    assert same_bits(host.read(index), kv(1))


def test_a_spoiled_block_is_not_a_number_anywhere() -> None:
    host = HostTier(SHAPE, BLOCK, 2 * BYTES)
    index = host.take()
    assert index is not None
    host.spoil(index)
    host.ready(index)
    keys, values = host.read(index)
    assert keys.isnan().all()
    assert values.isnan().all()


def test_a_tensor_that_would_broadcast_or_convert_is_refused() -> None:
    host = HostTier(SHAPE, BLOCK, BYTES)
    index = host.take()
    assert index is not None
    keys, values = kv(1)
    for wrong in (keys[:1], keys.bfloat16(), values):
        with pytest.raises(ValueError, match="a block of this model is"):
            host.write(index, (wrong, values))


@pytest.mark.parametrize("capacity", [0, BYTES - 1])
def test_without_room_for_a_block_the_tier_is_off(capacity: int) -> None:
    host = HostTier(SHAPE, BLOCK, capacity)
    assert (host.total, host.free, host.bytes_used, host.take()) == (0, 0, 0, None)
    host.check()


def test_books_that_lie_are_found() -> None:
    host = HostTier(SHAPE, BLOCK, 2 * BYTES)
    host._readers[0] = 1
    with pytest.raises(RuntimeError, match="readers"):
        host.check()
    host._free.append(0)
    with pytest.raises(RuntimeError, match="free list"):
        host.check()
