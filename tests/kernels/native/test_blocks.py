"""Copies between slots and blocks, against the same by indices."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels.native import Native, SlotBlocks

LAYERS, SLOTS, HEADS, DIM, TILES, PITCH, BLOCKS = 2, 3, 2, 8, 3, 32, 9


@given(
    size=st.sampled_from([4, 16, 32]),
    dtype=st.sampled_from([torch.float32, torch.float16]),
    slot=st.integers(0, SLOTS - 1),
    first=st.integers(0, 2),
    blocks=st.lists(st.integers(0, BLOCKS - 1), max_size=8),
    threads=st.sampled_from([1, 2]),
    seed=st.integers(0, 2**31),
)
def test_blocks_come_into_a_slot_and_out_of_it_as_they_are(
    library: Native, size: int, dtype: torch.dtype, slot: int, first: int, blocks: list[int], threads: int, seed: int
) -> None:
    torch.manual_seed(seed)
    context = TILES * PITCH
    blocks = blocks[: context // size - first]
    keys, values = torch.randn(LAYERS, SLOTS, HEADS, TILES, DIM, PITCH), torch.randn(LAYERS, SLOTS, HEADS, context, DIM)
    theirs = torch.randn(BLOCKS, LAYERS, HEADS, DIM, size), torch.randn(BLOCKS, LAYERS, HEADS, size, DIM)
    keys, values, block_keys, block_values = (tensor.to(dtype) for tensor in (keys, values, *theirs))
    copies = SlotBlocks(library, keys, values, block_keys, block_values)
    # [layers, heads, dim, context], of the slot
    flat = keys.clone()[:, slot].transpose(2, 3).flatten(3)
    rows, others = values.clone(), [other for other in range(SLOTS) if other != slot]
    for at, block in enumerate(blocks, first):
        flat[..., at * size : (at + 1) * size] = block_keys[block]
        rows[:, slot, :, at * size : (at + 1) * size] = block_values[block]
    before, known = keys[:, others].clone(), torch.get_num_threads()
    torch.set_num_threads(threads)
    copies.bring_in(slot, first, blocks)
    torch.set_num_threads(known)
    assert torch.equal(keys[:, slot].transpose(2, 3).flatten(3), flat)
    assert torch.equal(values, rows)
    assert torch.equal(keys[:, others], before)
    copies.take_out(slot, first, 0)
    assert torch.equal(block_keys[0], flat[..., first * size : (first + 1) * size])
    assert torch.equal(block_values[0], rows[:, slot, :, first * size : (first + 1) * size])


@pytest.mark.parametrize("size", [8, 16])
def test_no_blocks_are_no_copy(library: Native, size: int) -> None:
    keys, values = torch.zeros(1, 1, 1, 1, DIM, PITCH), torch.zeros(1, 1, 1, PITCH, DIM)
    SlotBlocks(library, keys, values, torch.ones(1, 1, 1, DIM, size), torch.ones(1, 1, 1, size, DIM)).bring_in(0, 0, [])
    assert not keys.any()
    assert not values.any()
