"""Attention over slots, however the rows of a step are grouped, against one query after another."""

import math
from itertools import combinations, pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.worker.kv.layouts import written
from worker.kv import KVShape, SlotLayout
from worker.rows import Row
from worker.slot_runs import adjacent

SLOTS, CONTEXT, KV_HEADS, SHARED, DIM = 6, 224, 2, 3, 8
counts = st.integers(1, 12) | st.sampled_from([64, 65, 130])


def naive(q: Tensor, keys: Tensor, values: Tensor, window: int | None) -> Tensor:
    """q [heads, dim] at the last of the positions in keys [kv heads, dim, n] and values [kv heads, n, dim]."""
    first = max(0, keys.shape[2] - (window or keys.shape[2]))
    mixed = []
    for head in range(len(q)):
        group = head // SHARED
        scores = q[head].double() @ keys[group, :, first:].double() / math.sqrt(DIM)
        mixed.append(scores.softmax(0) @ values[group, first:].double())
    return torch.stack(mixed)


@st.composite
def steps(draw: st.DrawFn) -> list[Row]:
    """Rows in different slots, those of one token first, as a batch has them."""
    slots = draw(st.lists(st.integers(0, SLOTS - 1), min_size=1, max_size=SLOTS, unique=True))
    rows = [Row(slot, draw(st.integers(0, 90)), draw(counts)) for slot in slots]
    return sorted(rows, key=lambda row: row.count > 1)


def full(layers: int, seed: int) -> SlotLayout:
    """Slots with something in every place."""
    shape, draw = KVShape(layers, KV_HEADS, DIM, torch.float32), torch.Generator().manual_seed(seed)
    layout = SlotLayout(shape, slots=SLOTS, context=CONTEXT, blocks=1, block_size=16)
    layout.keys.normal_(generator=draw)
    layout.values.normal_(generator=draw)
    return layout


@settings(max_examples=60)
@given(steps(), st.none() | st.integers(1, 100), st.integers(0, 2**31))
def test_every_token_sees_its_own_sequence_up_to_itself(rows: list[Row], window: int | None, seed: int) -> None:
    layout, draw = full(1, seed), torch.Generator().manual_seed(seed + 1)
    tokens = sum(row.count for row in rows)
    q = torch.randn(tokens, KV_HEADS * SHARED, DIM, generator=draw)
    k, v = torch.randn(2, tokens, KV_HEADS, DIM, generator=draw)
    mixed = layout.attention(rows, [window]).attend(0, q, k, v)
    assert_mixed(mixed, rows, window, q, k, v, layout)


@pytest.mark.usefixtures("without_native")
def test_so_does_it_in_plain_torch() -> None:
    test_every_token_sees_its_own_sequence_up_to_itself()


def assert_mixed(
    mixed: Tensor, rows: list[Row], window: int | None, q: Tensor, k: Tensor, v: Tensor, layout: SlotLayout
) -> None:
    token = 0
    for row in rows:
        keys, values = (of[0].transpose(0, 1) for of in written(layout, row.slot, row.start + row.count))
        for position in range(row.start, row.start + row.count):
            assert torch.equal(keys[:, position], k[token])
            assert torch.equal(values[:, position], v[token])
            end = position + 1
            expected = naive(q[token], keys[:, :end].transpose(1, 2), values[:, :end], window)
            torch.testing.assert_close(mixed[token].double(), expected, atol=1e-5, rtol=1e-5)
            token += 1


def test_layers_may_have_windows_of_their_own() -> None:
    layout = full(2, 0)
    q, k, v = torch.randn(1, 6, DIM), torch.randn(1, 2, DIM), torch.randn(1, 2, DIM)
    attention = layout.attention([Row(0, 9, 1)], [None, 4])
    for layer, window in enumerate([None, 4]):
        mixed = attention.attend(layer, q, k, v)
        keys, values = (of[layer].transpose(0, 1) for of in written(layout, 0, 10))
        expected = naive(q[0], keys.transpose(1, 2), values, window)
        torch.testing.assert_close(mixed[0].double(), expected, atol=1e-5, rtol=1e-5)


def cost(run: list[tuple[int, Row]], call: int) -> int:
    slots = run[-1][1].slot + 1 - run[0][1].slot
    return call + slots * max(row.start + row.count for _, row in run)


@given(st.dictionaries(st.integers(0, 20), st.integers(1, 3000), min_size=1, max_size=7), st.integers(1, 2000))
def test_no_other_cut_into_runs_reads_less(lengths: dict[int, int], call: int) -> None:
    placed = [(index, Row(slot, lengths[slot] - 1, 1)) for index, slot in enumerate(sorted(lengths))]
    runs = adjacent(placed, call)
    assert [place for run in runs for place in run] == placed
    ends = range(1, len(placed))
    best = min(
        sum(cost(placed[begin:end], call) for begin, end in pairwise([0, *cuts, len(placed)]))
        for size in range(len(placed))
        for cuts in combinations(ends, size)
    )
    assert sum(cost(run, call) for run in runs) == best
