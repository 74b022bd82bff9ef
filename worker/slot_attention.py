"""Attention over slots in plain torch: few tokens of many sequences all at once, chunks of prompts one by one."""

from collections.abc import Sequence

import torch
from torch import Tensor

from kernels import causal_mask, prefill_attention
from worker.rows import Row
from worker.slot_runs import SlotRuns, placed

_FEW = 8  # tokens up to which a row is computed beside others: replies, with what a grammar forces or a draft guesses
_TILE = 64  # queries of a chunk that are computed at once: each tile is spared the keys behind it


class SlotAttention:
    """See Attention. What all layers of one forward pass share: masks, and where each row's KV goes.

    rows      those of one token first
    windows   of each layer, how many positions a query sees, its own included; None for all
    keys      [layers, slots, kv heads, head_dim, context]
    values    [layers, slots, kv heads, context, head_dim]

    A window is a matter of masks alone: slots and blocks keep what lies before it.
    """

    def __init__(self, rows: list[Row], windows: Sequence[int | None], keys: Tensor, values: Tensor) -> None:
        self._keys, self._values, self._windows = keys, values, windows
        in_turn = placed(rows)
        few = [place for place in in_turn if place[1].count <= _FEW]
        self._token = torch.tensor([first + at for first, row in few for at in range(row.count)], dtype=torch.int64)
        self._few = SlotRuns([row for _, row in few], keys) if few else None
        self._chunks = [_Chunk(first, row, keys.dtype) for first, row in in_turn if row.count > _FEW]

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """See Attention."""
        keys, values, window = self._keys[layer], self._values[layer], self._windows[layer]
        if self._few is not None and len(self._token) == len(q):
            return self._few.mix(q, k, v, keys, values, window)
        mixed = torch.empty(q.shape, dtype=q.dtype)
        if self._few is not None:
            few = self._token
            mixed[few] = self._few.mix(q[few], k[few], v[few], keys, values, window)
        for chunk in self._chunks:
            chunk.mix(q, k, v, keys[chunk.slot], values[chunk.slot], window, mixed)
        return mixed

    @property
    def tasks(self) -> None:
        """This is torch's."""


class _Chunk:
    """A row of many tokens, in tiles."""

    def __init__(self, first: int, row: Row, dtype: torch.dtype) -> None:
        self.slot = row.slot
        self._first, self._row, self._dtype = first, row, dtype
        self._tiles = [(at, min(at + _TILE, row.count)) for at in range(0, row.count, _TILE)]
        self._masks: dict[int | None, list[Tensor]] = {}

    def mix(
        self, q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor, window: int | None, mixed: Tensor
    ) -> None:
        """Writes the row's KV into its slot, keys [kv heads, head_dim, context], and its part of `mixed`."""
        start, count, first = self._row.start, self._row.count, self._first
        keys[:, :, start : start + count] = k[first : first + count].permute(1, 2, 0)
        values[:, start : start + count] = v[first : first + count].transpose(0, 1)
        if window not in self._masks:
            self._masks[window] = [self._mask(at, end, window) for at, end in self._tiles]
        for (at, end), mask in zip(self._tiles, self._masks[window], strict=True):
            tile, total = slice(first + at, first + end), start + end
            mixed[tile] = prefill_attention(q[tile], keys[:, :, :total], values[:, :total], mask)

    def _mask(self, at: int, end: int, window: int | None) -> Tensor:
        """All queries of a tile see what lies before it, unless there is a window."""
        return causal_mask(0 if window is None else self._row.start + at, end - at, self._dtype, window)
