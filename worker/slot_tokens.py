"""Rows of few tokens over slots, token by token, by the kernels in C."""

import torch
from torch import Tensor

from kernels.native import Native, SlotTask
from worker.rows import Row


class SlotTokens:
    """See Few. What a token gets is the same bits whatever others there are.

    rows   their tokens follow each other
    """

    def __init__(self, library: Native, rows: list[Row]) -> None:
        self._library = library
        self._slot = torch.tensor([row.slot for row in rows for _ in range(row.count)])
        self._end = torch.tensor([row.start + at + 1 for row in rows for at in range(row.count)])
        self._tasks: dict[int | None, SlotTask] = {}

    def mix(self, q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor, window: int | None) -> Tensor:
        """See Few."""
        mixed = torch.empty(q.shape)
        self.task(window).run(self._library, q, k, v, keys, values, mixed)
        return mixed

    def task(self, window: int | None) -> SlotTask:
        """What the tokens see in a layer with this window."""
        if window not in self._tasks:
            begin = torch.zeros_like(self._end) if window is None else (self._end - window).clamp_min_(0)
            self._tasks[window] = SlotTask(self._slot, begin, self._end)
        return self._tasks[window]
