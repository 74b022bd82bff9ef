import math
from itertools import product

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from kernels import causal_mask, fold_mask, length_mask, prefill_attention, slots_attention

groups = st.integers(1, 3)
shared = st.integers(1, 4)
dims = st.sampled_from([4, 8, 16])
seeds = st.integers(0, 2**31)
windows = st.none() | st.integers(1, 50)


def naive(q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """One query: q [heads, dim], keys and values [positions, kv heads, dim], all of them visible; in float64."""
    heads, dim = q.shape
    mixed = []
    for head in range(heads):
        group = head * keys.shape[1] // heads
        scores = keys[:, group].double() @ q[head].double() / math.sqrt(dim)
        mixed.append(scores.softmax(0) @ values[:, group].double())
    return torch.stack(mixed)


def laid_out(keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """From [slots, positions, kv heads, dim] to what slots hold."""
    return keys.permute(0, 2, 3, 1).contiguous(), values.transpose(1, 2).contiguous()


@given(
    st.integers(1, 4).flatmap(
        lambda count: st.lists(st.lists(st.integers(1, 40), min_size=count, max_size=count), min_size=1, max_size=5)
    ),
    windows,
    groups,
    shared,
    dims,
    seeds,
)
def test_each_query_sees_its_slot_up_to_its_own_length(
    lengths: list[list[int]], window: int | None, kv_heads: int, fold: int, dim: int, seed: int
) -> None:
    draw = torch.Generator().manual_seed(seed)
    slots, count, longest = len(lengths), len(lengths[0]), max(map(max, lengths))
    q = torch.randn(slots, count, kv_heads * fold, dim, generator=draw)
    keys = torch.randn(slots, 48, kv_heads, dim, generator=draw)
    values = torch.randn(slots, 48, kv_heads, dim, generator=draw)
    mask = fold_mask(length_mask(torch.tensor(lengths), longest, torch.float32, window), kv_heads, fold)
    mixed = slots_attention(q, *laid_out(keys, values), longest, mask)
    for slot, query in product(range(slots), range(count)):
        length = lengths[slot][query]
        first = max(0, length - (window or length))
        expected = naive(q[slot, query], keys[slot, first:length], values[slot, first:length])
        torch.testing.assert_close(mixed[slot, query].double(), expected, atol=1e-5, rtol=1e-5)


def test_without_a_mask_all_positions_are_seen() -> None:
    q, keys, values = torch.randn(2, 3, 4, 8), torch.randn(2, 9, 2, 8), torch.randn(2, 9, 2, 8)
    mixed = slots_attention(q, *laid_out(keys, values), 7, None)
    torch.testing.assert_close(mixed[1, 2].double(), naive(q[1, 2], keys[1, :7], values[1, :7]), atol=1e-5, rtol=1e-5)


@given(st.integers(0, 30), st.integers(1, 20), windows, groups, shared, dims, seeds)
def test_prefill_sees_everything_up_to_its_own_position(
    start: int, count: int, window: int | None, kv_heads: int, fold: int, dim: int, seed: int
) -> None:
    draw = torch.Generator().manual_seed(seed)
    q = torch.randn(count, kv_heads * fold, dim, generator=draw)
    keys, values = torch.randn(2, 64, kv_heads, dim, generator=draw)
    mask = causal_mask(0 if window is None else start, count, torch.float32, window)
    slot_keys, slot_values = keys.permute(1, 2, 0).contiguous(), values.transpose(0, 1).contiguous()
    end = start + count
    mixed = prefill_attention(q, slot_keys[:, :, :end], slot_values[:, :end], mask)
    for row in range(count):
        end = start + row + 1
        seen = slice(max(0, end - (window or end)), end)
        torch.testing.assert_close(mixed[row].double(), naive(q[row], keys[seen], values[seen]), atol=1e-5, rtol=1e-5)


def test_what_lies_behind_the_visible_positions_is_never_read() -> None:
    q, keys, values = torch.randn(1, 1, 2, 8), torch.randn(1, 1, 8, 16), torch.randn(1, 1, 16, 8)
    before = slots_attention(q, keys, values, 5, None)
    keys[..., 5:], values[:, :, 5:] = torch.nan, torch.nan
    assert torch.equal(before, slots_attention(q, keys, values, 5, None))


def test_masks_are_zero_where_visible_and_minus_infinity_elsewhere() -> None:
    lengths = length_mask(torch.tensor([[1], [3]]), 3, torch.float32)
    assert lengths[:, 0].tolist() == [[0, -math.inf, -math.inf], [0, 0, 0]]
    assert causal_mask(1, 2, torch.float32).tolist() == [[0, 0, -math.inf], [0, 0, 0]]
    assert length_mask(torch.tensor([[3]]), 3, torch.float32, 2)[0, 0].tolist() == [-math.inf, 0, 0]
    assert causal_mask(1, 2, torch.float32, 1).tolist() == [[-math.inf, 0, -math.inf], [-math.inf, -math.inf, 0]]
