"""Attention over slots: one contiguous run of keys and values per sequence.

Keys are stored transposed, [kv heads, head_dim, positions], so that both products are plain batched matrix products on
views. Row-major keys make torch copy the cache at every step. Query heads that share a KV head are folded into rows.
"""

import math

import torch
from torch import Tensor


def length_mask(lengths: Tensor, longest: int, dtype: torch.dtype, window: int | None = None) -> Tensor:
    """Additive mask: 0 for the positions below a length, else -inf.

    lengths   int64 [slots, count], of each query
    window    only that many positions, the last; None for all
    returns   [slots, count, longest]
    """
    positions, ends = torch.arange(longest), lengths.unsqueeze(-1)
    visible = positions < ends
    if window is not None:
        visible &= positions >= ends - window
    return torch.zeros(visible.shape, dtype=dtype).masked_fill_(~visible, -math.inf)


def causal_mask(start: int, count: int, dtype: torch.dtype, window: int | None = None) -> Tensor:
    """Additive mask [count, start + count] for queries at positions start .. start + count - 1.

    window   how many positions each of them sees, its own included; None for all up to its own
    """
    total = start + count
    keys, queries = torch.arange(total).unsqueeze(0), torch.arange(start, total).unsqueeze(1)
    visible = keys <= queries
    if window is not None:
        visible &= keys > queries - window
    return torch.zeros(visible.shape, dtype=dtype).masked_fill_(~visible, -math.inf)


def fold_mask(mask: Tensor, groups: int, shared: int) -> Tensor:
    """A mask of `length_mask`, as `slots_attention` adds it: once for each row of scores, or for all of a KV head."""
    slots, count, longest = mask.shape
    if count == 1:
        return mask.repeat_interleave(groups, 0)
    whole = mask.view(slots, 1, 1, count, longest).expand(slots, groups, shared, count, longest)
    return whole.reshape(slots * groups, shared * count, longest)


def slots_attention(q: Tensor, keys: Tensor, values: Tensor, longest: int, mask: Tensor | None) -> Tensor:
    """As many queries of each of some adjacent slots, whose keys and values are already there.

    q        [slots, count, heads, head_dim]
    keys     [slots, kv heads, head_dim, positions], a view is enough
    values   [slots, kv heads, positions, head_dim]
    longest  positions that are looked at
    mask     from `fold_mask`; every query must see at least one position. None: every query sees all of them
    returns  [slots, count, heads, head_dim]
    """
    slots, count, heads, dim = q.shape
    groups = keys.shape[1]
    shared = heads // groups
    seen = keys.view(slots * groups, dim, -1)[:, :, :longest]
    if count == 1:
        rows = q.reshape(slots * groups, shared, dim)
    else:
        rows = q.view(slots, count, groups, shared, dim).permute(0, 2, 3, 1, 4).reshape(slots * groups, -1, dim)
    if mask is None:
        scores = torch.baddbmm(q.new_zeros(()), rows, seen, beta=0, alpha=dim**-0.5)
    else:
        scores = torch.baddbmm(mask, rows, seen, alpha=dim**-0.5)
    mixed = torch.bmm(scores.softmax(-1), values.view(slots * groups, -1, dim)[:, :longest])
    if count == 1:
        return mixed.view(slots, 1, heads, dim)
    return mixed.view(slots, groups, shared, count, dim).permute(0, 3, 1, 2, 4).reshape(slots, count, heads, dim)


def prefill_attention(q: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """Many queries of one sequence, whose keys and values are already in its slot.

    q        [count, heads, head_dim]
    keys     [kv heads, head_dim, positions], up to the last that any query sees
    values   [kv heads, positions, head_dim]
    mask     additive, [count, n], for the last n positions; all queries see those before them
    returns  [count, heads, head_dim]
    """
    count, heads, dim = q.shape
    groups, _, total = keys.shape
    shared = heads // groups
    rows = q.view(count, groups, shared, dim).permute(1, 2, 0, 3).reshape(groups, shared * count, dim) * (dim**-0.5)
    scores = torch.bmm(rows, keys)
    scores.view(groups, shared, count, total)[..., total - mask.shape[-1] :].add_(mask)
    mixed = torch.bmm(scores.softmax(-1), values)
    return mixed.view(groups, shared, count, dim).permute(2, 0, 1, 3).reshape(count, heads, dim)
