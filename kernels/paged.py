"""Attention over blocks: a sequence's keys and values lie wherever its table says.

A block's keys are transposed like a slot's (see kernels/attention.py). A block has two parts, keys and values, or four
when they are codes: keys, values, peaks of the keys, peaks of the values (see kernels/kvcodes.py). Of all blocks:

    keys     [blocks, kv heads, head_dim, block size], a view is enough
    values   [blocks, kv heads, block size, head_dim]
    peaks    [blocks, kv heads, block size]

This is the reference in plain torch, for any device: it gathers the blocks of each sequence and widens their codes,
which a kernel for the purpose need not.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from kernels.kvcodes import as_values, quantize


def visible_positions(starts: Tensor, count: int, total: int, window: int | None = None) -> Tensor:
    """Which of `total` positions each query sees, bool [rows, count, total].

    starts   int64 [rows], position of the first of the row's `count` queries
    window   how many positions each of them sees, its own included; None for all up to its own
    """
    queries = starts[:, None, None] + torch.arange(count, device=starts.device)[None, :, None]
    keys = torch.arange(total, device=starts.device)
    visible = keys <= queries
    if window is not None:
        visible &= keys > queries - window
    return visible


def write_blocks(parts: Sequence[Tensor], block: Tensor, offset: Tensor, k: Tensor, v: Tensor) -> None:
    """Puts each token's key and value into its place, rounded to codes where the parts are codes.

    parts          of all blocks
    block, offset  int64 [tokens], each place once
    k, v           [tokens, kv heads, head_dim]
    """
    keys, values, *peaks = parts
    if peaks:
        k, peaks[0][block, :, offset] = quantize(k, keys.dtype)
        v, peaks[1][block, :, offset] = quantize(v, keys.dtype)
    keys[block, :, :, offset] = k
    values[block, :, offset] = v


def paged_attention(q: Tensor, parts: Sequence[Tensor], tables: Tensor, visible: Tensor) -> Tensor:
    """As many queries of each sequence, whose keys and values are already in their blocks.

    q        [rows, count, heads, head_dim]
    parts    of all blocks
    tables   int64 [rows, n], each row's blocks in order; what lies behind its last is never visible, and may be any
    visible  bool [rows, count, n * block size]; every query must see at least one position
    returns  [rows, count, heads, head_dim]
    """
    rows, count, heads, dim = q.shape
    groups = parts[0].shape[1]
    total = visible.shape[-1]
    shared = heads // groups
    keys, values = as_values([part[tables] for part in parts], q.dtype)
    gathered = keys.permute(0, 2, 3, 1, 4).reshape(rows, groups, dim, total)
    mixed_from = values.transpose(1, 2).reshape(rows, groups, total, dim)
    # What nobody has written yet may be anything, and nothing times not-a-number is not nothing.
    mixed_from.masked_fill_(~visible.any(1)[:, None, :, None], 0)
    folded = q.view(rows, count, groups, shared, dim).permute(0, 2, 3, 1, 4).reshape(rows, groups, shared * count, dim)
    scores = ((folded * dim**-0.5) @ gathered).view(rows, groups, shared, count, total)
    weights = scores.masked_fill_(~visible[:, None, None], -math.inf).softmax(-1)
    mixed = torch.matmul(weights.view(rows, groups, shared * count, total), mixed_from)
    return mixed.view(rows, groups, shared, count, dim).permute(0, 3, 1, 2, 4).reshape(rows, count, heads, dim)
