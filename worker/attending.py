"""Attention of one forward pass: single tokens all at once, chunks one by one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kernels import (
    causal_mask,
    decode_attention,
    length_mask,
    paged_attention,
    prefill_attention,
    visible_positions,
    write_blocks,
)
from worker.rows import Row


class Attention(Protocol):
    """The attention of all layers of one forward pass, over whatever layout the KV has."""

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Writes the KV of the rows' tokens into a layer, then mixes all that each token may see there.

        q         [tokens, heads, head_dim]
        k, v      [tokens, kv heads, head_dim]
        returns   [tokens, heads, head_dim]
        """


class SlotAttention:
    """Over slots: what all layers share is masks, and where each row's KV goes.

    rows      those of one token first
    windows   of each layer, how many positions a query sees, its own included; None for all
    keys      [layers, slots, kv heads, head_dim, context]
    values    [layers, slots, kv heads, context, head_dim]

    A window is a matter of masks alone: slots and blocks keep what lies before it.
    """

    def __init__(self, rows: list[Row], windows: Sequence[int | None], keys: Tensor, values: Tensor) -> None:
        self._keys, self._values = keys, values
        self._singles = singles = [row for row in rows if row.count == 1]
        self._chunks = rows[len(singles) :]
        dtype = keys.dtype
        self._windows = windows
        kinds = set(windows)
        self._masks = {
            window: [causal_mask(row.start, row.count, dtype, window) for row in self._chunks] for window in kinds
        }
        if singles:
            self._slot = torch.tensor([row.slot for row in singles])
            self._position = torch.tensor([row.start for row in singles])
            # Slots between the running ones are computed too and thrown away: adjacent slots are one view, and
            # gathering the busy ones would copy the cache at every layer.
            self._span = max(row.slot for row in singles) + 1
            lengths = torch.ones(self._span, dtype=torch.int64)
            lengths[self._slot] = self._position + 1
            longest = int(lengths.max())
            self._length_masks = {window: length_mask(lengths, longest, dtype, window) for window in kinds}

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        keys, values, window = self._keys[layer], self._values[layer], self._windows[layer]
        mixed = torch.empty_like(q)
        done = len(self._singles)
        if done:
            mixed[:done] = self._decode(q[:done], k[:done], v[:done], keys, values, self._length_masks[window])
        for row, mask in zip(self._chunks, self._masks[window], strict=True):
            part, end = slice(done, done + row.count), row.start + row.count
            keys[row.slot, :, :, row.start : end] = k[part].permute(1, 2, 0)
            values[row.slot, :, row.start : end] = v[part].transpose(0, 1)
            mixed[part] = prefill_attention(q[part], keys[row.slot], values[row.slot], mask)
            done += row.count
        return mixed

    def _decode(self, q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        keys[self._slot, :, :, self._position] = k
        values[self._slot, :, self._position] = v
        padded = q.new_zeros(self._span, *q.shape[1:])
        padded[self._slot] = q
        return decode_attention(padded, keys[: self._span], values[: self._span], mask)[self._slot]


@dataclass(frozen=True, slots=True)
class _Group:
    """Rows of equally many tokens, computed together.

    part      where their tokens are among all
    tables    int64 [rows, n], the blocks that hold each row's positions
    visible   by window, bool [rows, count, n * block size]
    """

    part: slice
    tables: Tensor
    visible: dict[int | None, Tensor]


class PagedAttention:
    """Over blocks of the pool: what all layers share is each row's blocks, and what its tokens see.

    rows, windows   as above
    keys            [blocks, layers, kv heads, head_dim, block size]
    values          [blocks, layers, kv heads, block size, head_dim]
    tables          int64 [slots, most blocks], each slot's blocks in order
    """

    def __init__(
        self,
        rows: list[Row],
        windows: Sequence[int | None],
        keys: Tensor,
        values: Tensor,
        tables: NDArray[np.int64],
    ) -> None:
        self._keys, self._values, self._windows, self._tables = keys, values, windows, tables
        self._block_size = keys.shape[-1]
        slots = np.repeat([row.slot for row in rows], [row.count for row in rows])
        positions = np.concatenate([np.arange(row.start, row.start + row.count) for row in rows])
        self._block = self._tensor(tables[slots, positions // self._block_size])
        self._offset = self._tensor(positions % self._block_size)
        singles = [row for row in rows if row.count == 1]
        self._groups = [self._group(0, singles)] if singles else []
        done = len(singles)
        for row in rows[done:]:
            self._groups.append(self._group(done, [row]))
            done += row.count

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        keys, values, window = self._keys[:, layer], self._values[:, layer], self._windows[layer]
        write_blocks(keys, values, self._block, self._offset, k, v)
        mixed = torch.empty_like(q)
        for group in self._groups:
            queries = q[group.part].view(len(group.tables), -1, *q.shape[1:])
            found = paged_attention(queries, keys, values, group.tables, group.visible[window])
            mixed[group.part] = found.flatten(0, 1)
        return mixed

    def _group(self, done: int, rows: list[Row]) -> _Group:
        count = rows[0].count
        blocks = -(-max(row.start + count for row in rows) // self._block_size)
        starts = self._tensor(np.array([row.start for row in rows]))
        return _Group(
            slice(done, done + len(rows) * count),
            self._tensor(self._tables[[row.slot for row in rows], :blocks]),
            {
                window: visible_positions(starts, count, blocks * self._block_size, window)
                for window in set(self._windows)
            },
        )

    def _tensor(self, numbers: NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(numbers).to(self._keys.device)
