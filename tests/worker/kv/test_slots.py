"""Copies between slots and blocks."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worker.kv.layouts import HalfSlots, TorchSlots, kept_of, write, written
from worker.kv.radix import NOWHERE
from worker.kv.shape import KVShape
from worker.kv.slots import SlotLayout

SHAPE = KVShape(layers=2, kv_heads=2, head_dim=8, dtype=torch.float32)
BLOCK, CONTEXT = 64, 300  # the kernels in C keep keys in tiles of 128 positions; the last one is not full
SlotClass = type[SlotLayout]


@pytest.fixture(scope="module", params=[SlotLayout, HalfSlots, TorchSlots])
def kind(request: pytest.FixtureRequest) -> SlotClass:
    found: SlotClass = request.param
    return found


def layout_of(kind: SlotClass, count: int = 3, blocks: int = 8) -> SlotLayout:
    return kind(SHAPE, slots=count, context=CONTEXT, blocks=blocks, block_size=BLOCK)


def filled(layout: SlotLayout, slot: int, seed: int = 0, start: int = 0) -> None:
    """Writes random KV to every position of a slot, from one on."""
    draw = torch.Generator().manual_seed(seed)
    keys, values = torch.randn(2, SHAPE.layers, CONTEXT - start, SHAPE.kv_heads, SHAPE.head_dim, generator=draw)
    if start < CONTEXT:
        write(layout, slot, start, keys, values)


def kept(layout: SlotLayout, slot: int, index: int) -> int:
    block = layout.keep(slot, index, NOWHERE)
    assert block is not None
    return block


@settings(max_examples=30)
@given(places=st.lists(st.integers(0, CONTEXT // BLOCK - 1), min_size=1, max_size=4), seed=st.integers(0, 2**31))
def test_what_is_copied_out_is_what_is_copied_in(kind: SlotClass, places: list[int], seed: int) -> None:
    layout = layout_of(kind)
    filled(layout, 0, seed)
    for index, place in enumerate(places):
        layout.bring_in(2, index, [kept(layout, 0, place)])
    for mine, theirs in zip(written(layout, 2, CONTEXT), written(layout, 0, CONTEXT), strict=True):
        for index, place in enumerate(places):
            there, here = slice(place * BLOCK, (place + 1) * BLOCK), slice(index * BLOCK, (index + 1) * BLOCK)
            assert torch.equal(mine[:, here], theirs[:, there])


def test_a_copy_touches_nothing_else(kind: SlotClass) -> None:
    layout = layout_of(kind)
    filled(layout, 0)
    block = kept(layout, 0, 0)
    layout.bring_in(1, 0, [block])
    assert not any(part[:, BLOCK:].any() for part in written(layout, 1, CONTEXT))
    assert not any(part.any() for part in written(layout, 2, CONTEXT))
    assert not any(part.any() for other in range(8) if other != block for part in layout.store.block(other))


def test_a_block_outlives_its_slot(kind: SlotClass) -> None:
    layout = layout_of(kind)
    filled(layout, 0, seed=1)
    block = kept(layout, 0, 0)
    before = [part.clone() for part in layout.store.block(block)]
    filled(layout, 0, seed=2)
    assert all(torch.equal(part, was) for part, was in zip(layout.store.block(block), before, strict=True))


def test_a_block_that_is_known_is_not_copied_again(kind: SlotClass) -> None:
    layout = layout_of(kind)
    filled(layout, 0)
    block = kept(layout, 0, 0)
    assert layout.keep(1, 0, block) == block
    assert layout.pool.free == 7


def test_a_full_pool_keeps_nothing(kind: SlotClass) -> None:
    layout = layout_of(kind, blocks=1)
    kept(layout, 0, 0)
    assert layout.keep(0, 1, NOWHERE) is None


def test_what_the_loader_writes_is_in_the_slot(kind: SlotClass) -> None:
    layout = layout_of(kind)
    filled(layout, 0)
    expected = layout.expect(1, 1)
    assert expected is not None
    for into, part in zip(expected, layout.store.block(kept(layout, 0, 1)), strict=True):
        into.copy_(part)
    layout.arrived(1)
    for mine, theirs in zip(written(layout, 1, 2 * BLOCK), written(layout, 0, 2 * BLOCK), strict=True):
        assert torch.equal(mine[:, BLOCK:], theirs[:, BLOCK:])


@settings(max_examples=30)
@given(tokens=st.integers(0, CONTEXT), seed=st.integers(0, 2**31))
def test_a_fork_begins_with_the_very_positions_of_its_source_and_both_go_on_apart(
    kind: SlotClass, tokens: int, seed: int
) -> None:
    layout = layout_of(kind)
    filled(layout, 0, seed)
    before = [part.clone() for part in written(layout, 0, CONTEXT)]
    layout.fork(0, 1, tokens)
    filled(layout, 1, seed + 1, tokens)
    for mine, was, theirs in zip(written(layout, 1, tokens), before, written(layout, 0, CONTEXT), strict=True):
        assert torch.equal(mine, was[:, :tokens])
        assert torch.equal(theirs, was)


@pytest.mark.parametrize("value", [70_000.0, 1e-9, 1.0 + 2**-12])
def test_halves_are_the_nearest_that_there_are(value: float) -> None:
    layout = layout_of(HalfSlots)
    rows = torch.full((SHAPE.layers, 1, SHAPE.kv_heads, SHAPE.head_dim), value)
    write(layout, 0, 0, rows, -rows)
    keys, values = written(layout, 0, 1)
    assert torch.equal(keys, kept_of(layout, rows))
    assert torch.equal(values, -keys)
