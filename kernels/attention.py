"""Attention over slots: one contiguous run of keys and values per sequence.

Keys are stored transposed, [kv heads, head_dim, positions], so that both products are plain batched matrix products on
views. Row-major keys make torch copy the cache at every step. Query heads that share a KV head are folded into rows.
"""

import math

import torch
from torch import Tensor


def length_mask(lengths: Tensor, longest: int, dtype: torch.dtype, window: int | None = None) -> Tensor:
    """Additive mask [sequences, 1, 1, longest]: 0 for the positions below a length, else -inf.

    window   only that many of them, the last; None for all
    """
    positions, ends = torch.arange(longest).unsqueeze(0), lengths.unsqueeze(1)
    visible = positions < ends
    if window is not None:
        visible &= positions >= ends - window
    return torch.zeros(visible.shape, dtype=dtype).masked_fill_(~visible, -math.inf)[:, None, None, :]


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


def decode_attention(q: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """One query per slot, for a run of adjacent slots.

    q        [slots, heads, head_dim]
    keys     [slots, kv heads, head_dim, positions], a view is enough
    values   [slots, kv heads, positions, head_dim]
    mask     [slots, 1, 1, longest] from `length_mask`; every slot must see at least one position
    returns  [slots, heads, head_dim]
    """
    slots, heads, dim = q.shape
    groups, longest = keys.shape[1], mask.shape[-1]
    rows = q.reshape(slots * groups, heads // groups, dim) * (dim**-0.5)
    scores = torch.bmm(rows, keys.reshape(slots * groups, dim, -1)[:, :, :longest])
    weights = (scores.view(slots, groups, heads // groups, longest) + mask).softmax(-1)
    mixed = torch.bmm(weights.view_as(scores), values.reshape(slots * groups, -1, dim)[:, :longest])
    return mixed.view(slots, heads, dim)


def prefill_attention(q: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """Many queries of one sequence, whose keys and values are already in its slot.

    q        [count, heads, head_dim]
    keys     [kv heads, head_dim, positions]
    values   [kv heads, positions, head_dim]
    mask     [count, total] from `causal_mask`
    returns  [count, heads, head_dim]
    """
    count, heads, dim = q.shape
    groups, total = keys.shape[0], mask.shape[-1]
    shared = heads // groups
    rows = q.view(count, groups, shared, dim).permute(1, 2, 0, 3).reshape(groups, shared * count, dim) * (dim**-0.5)
    scores = torch.bmm(rows, keys[:, :, :total]).view(groups, shared, count, total)
    weights = scores.add_(mask).softmax(-1).view(groups, shared * count, total)
    mixed = torch.bmm(weights, values[:, :total])
    return mixed.view(groups, shared, count, dim).permute(2, 0, 1, 3).reshape(count, heads, dim)
