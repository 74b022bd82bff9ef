"""The CPU's layout for the deterministic mode: attention whose every product has a shape that the position fixes."""

from collections.abc import Sequence

import torch
from torch import Tensor

from kernels import causal_mask, prefill_attention
from worker.attending import Attention
from worker.kv.slots import SlotLayout
from worker.rows import Row

TILE = 16  # positions; also the rows of every product of the deterministic mode


class TiledSlotLayout(SlotLayout):
    """Slots whose attention is the same bit by bit alone and in any batch, in whatever chunks a sequence comes."""

    def over_slots(self, rows: list[Row], windows: Sequence[int | None]) -> Attention:
        if self.library is not None:  # whose attention is the same bits anyway
            return super().over_slots(rows, windows)
        return TiledAttention(rows, windows, self.keys[:, :, :, 0], self.values)


class TiledAttention:
    """Attention by tiles of positions that begin at a multiple of TILE: a token is computed in its tile's shape, with
    zeros for the others that are not of this step.

    rows, windows, keys, values   as SlotAttention has them
    """

    def __init__(self, rows: list[Row], windows: Sequence[int | None], keys: Tensor, values: Tensor) -> None:
        self._rows, self._windows, self._keys, self._values = rows, windows, keys, values

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        mixed = torch.empty_like(q)
        done = 0
        for row in self._rows:
            part, end = slice(done, done + row.count), row.start + row.count
            keys, values = self._keys[layer, row.slot], self._values[layer, row.slot]
            keys[:, :, row.start : end] = k[part].permute(1, 2, 0)
            values[:, row.start : end] = v[part].transpose(0, 1)
            for start in range(row.start // TILE * TILE, end, TILE):
                mine = slice(max(start, row.start), min(start + TILE, end))
                queries = q.new_zeros(min(TILE, keys.shape[-1] - start), *q.shape[1:])
                here = slice(mine.start - start, mine.stop - start)
                at = slice(done + mine.start - row.start, done + mine.stop - row.start)
                queries[here] = q[at]
                # Positions behind the row may hold anything: their weight is exactly 0.
                mask = causal_mask(start, len(queries), keys.dtype, self._windows[layer])
                seen = start + len(queries)
                mixed[at] = prefill_attention(queries, keys[..., :seen], values[:, :seen], mask)[here]
            done += row.count
        return mixed

    @property
    def tasks(self) -> None:
        """Tiles are torch's."""
