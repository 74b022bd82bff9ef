"""Attention of one forward pass, whatever layout the KV has, and over blocks of the pool."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kernels import paged_attention, rounded, visible_positions, write_blocks
from kernels.native import SlotTasks
from worker.rows import Row


class Attention(Protocol):
    """The attention of all layers of one forward pass, over whatever layout the KV has."""

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Writes the KV of the rows' tokens into a layer, then mixes all that each token may see there.

        q         [tokens, heads, head_dim]
        k, v      [tokens, kv heads, head_dim]
        returns   [tokens, heads, head_dim]
        """

    @property
    def tasks(self) -> SlotTasks | None:
        """The same for all layers at once, by the kernels in C; None where they don't compute all of it."""


class RoundedAttention:
    """Another attention, all of whose keys and values are such as codes can hold.

    codes   dtype of the codes

    They are rounded before anybody sees them: who computed a token sees what others will have who get it from a block.
    """

    def __init__(self, attention: Attention, codes: torch.dtype) -> None:
        self._attention, self._codes = attention, codes

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        k, v = rounded(torch.stack((k, v)), self._codes)
        return self._attention.attend(layer, q, k, v)

    @property
    def tasks(self) -> None:
        """Rounding is torch's."""


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

    rows, windows   of one step, as in worker/slot_attention.py
    parts           of all blocks, as in kernels/paged.py, each with the layers behind the blocks
    block_size      tokens
    tables          int64 [slots, most blocks], each slot's blocks in order
    """

    def __init__(
        self,
        rows: list[Row],
        windows: Sequence[int | None],
        parts: Sequence[Tensor],
        block_size: int,
        tables: NDArray[np.int64],
    ) -> None:
        self._parts, self._windows, self._tables = parts, windows, tables
        self._block_size = block_size
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
        parts, window = [part[:, layer] for part in self._parts], self._windows[layer]
        write_blocks(parts, self._block, self._offset, k, v)
        mixed = torch.empty_like(q)
        for group in self._groups:
            queries = q[group.part].view(len(group.tables), -1, *q.shape[1:])
            found = paged_attention(queries, parts, group.tables, group.visible[window])
            mixed[group.part] = found.flatten(0, 1)
        return mixed

    @property
    def tasks(self) -> None:
        """Blocks are torch's."""

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
        return torch.from_numpy(numbers).to(self._parts[0].device)
