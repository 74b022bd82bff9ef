"""Copies between slots and blocks, and the list of free slots."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from worker.kv.slots import KVShape, Slots

SHAPE = KVShape(layers=2, kv_heads=2, head_dim=4, dtype=torch.float32)
BLOCK, CONTEXT = 4, 32


def slots_of(count: int = 3, blocks: int = 8) -> Slots:
    return Slots(SHAPE, slots=count, context=CONTEXT, blocks=blocks, block_size=BLOCK)


def filled(slots: Slots, slot: int, seed: int = 0) -> None:
    """Writes random KV to every position of a slot."""
    draw = torch.Generator().manual_seed(seed)
    slots.keys[:, slot] = torch.randn(slots.keys[:, slot].shape, generator=draw)
    slots.values[:, slot] = torch.randn(slots.values[:, slot].shape, generator=draw)


@given(st.lists(st.integers(0, CONTEXT // BLOCK - 1), min_size=1, max_size=8), st.integers(0, 2**31))
def test_what_is_copied_out_is_what_is_copied_in(places: list[int], seed: int) -> None:
    slots = slots_of()
    filled(slots, 0, seed)
    for block, place in enumerate(places):
        slots.copy_out(0, place * BLOCK, block)
    slots.copy_in(2, list(range(len(places))))
    for block, place in enumerate(places):
        there, here = slice(place * BLOCK, (place + 1) * BLOCK), slice(block * BLOCK, (block + 1) * BLOCK)
        assert torch.equal(slots.keys[:, 2, :, :, here], slots.keys[:, 0, :, :, there])
        assert torch.equal(slots.values[:, 2, :, here], slots.values[:, 0, :, there])


def test_a_copy_touches_nothing_else() -> None:
    slots = slots_of()
    filled(slots, 0)
    slots.copy_out(0, 0, 5)
    slots.copy_in(1, [5])
    assert not slots.keys[:, 1, :, :, BLOCK:].any()
    assert not slots.values[:, 1, :, BLOCK:].any()
    assert not slots.keys[:, 2].any()
    assert not any(slots.block(block)[0].any() for block in range(8) if block != 5)


def test_a_block_outlives_its_slot() -> None:
    slots = slots_of()
    filled(slots, 0, seed=1)
    slots.copy_out(0, 0, 0)
    keys, values = (part.clone() for part in slots.block(0))
    filled(slots, 0, seed=2)
    assert torch.equal(slots.block(0)[0], keys)
    assert torch.equal(slots.block(0)[1], values)


def test_no_block_copies_nothing() -> None:
    slots = slots_of()
    filled(slots, 0)
    before = slots.keys.clone()
    slots.copy_in(0, [])
    assert torch.equal(slots.keys, before)


def test_a_spoiled_block_is_not_a_number_anywhere() -> None:
    slots = slots_of()
    slots.spoil(3)
    keys, values = slots.block(3)
    assert keys.isnan().all()
    assert values.isnan().all()
    assert not slots.block(2)[0].isnan().any()


def test_the_lowest_free_slot_is_taken() -> None:
    slots = slots_of(3)
    assert [slots.take() for _ in range(4)] == [0, 1, 2, None]
    slots.give_back(2)
    slots.give_back(0)
    assert (slots.free, slots.take(), slots.take(), slots.free) == (2, 0, 2, 0)


def test_giving_a_slot_back_twice_is_a_bug_of_ours() -> None:
    slots = slots_of()
    with pytest.raises(RuntimeError, match="twice"):
        slots.give_back(0)


def test_bytes_per_token_count_keys_and_values_of_all_layers() -> None:
    assert SHAPE.bytes_per_token == 2 * 2 * 2 * 4 * 4
