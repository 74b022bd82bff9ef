"""Attention over slots by the kernels in C."""

from collections.abc import Sequence

import torch
from torch import Tensor

from kernels.native import Native, SlotTask, SlotTasks
from worker.rows import Row


class NativeSlotAttention:
    """See Attention: replies, their drafts and chunks of prompts all alike. What a token gets is the same bits whatever
    chunk it comes in, and whatever others there are.

    rows      of one forward pass
    windows   of each layer, how many positions a query sees, its own included; None for all
    keys      [layers, slots, kv heads, context / pitch, head_dim, pitch]
    values    [layers, slots, kv heads, context, head_dim]
    """

    def __init__(
        self, library: Native, rows: list[Row], windows: Sequence[int | None], keys: Tensor, values: Tensor
    ) -> None:
        self._library, self._keys, self._values = library, keys, values
        places = [(row.slot, row.start, row.count) for row in rows]
        tasks = {window: SlotTask(places, window) for window in set(windows)}
        self._tasks = [tasks[window] for window in windows]

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """See Attention."""
        mixed = torch.empty(q.shape)
        self._tasks[layer].run(self._library, q, k, v, self._keys[layer], self._values[layer], mixed)
        return mixed

    @property
    def tasks(self) -> SlotTasks:
        """See Attention."""
        return SlotTasks(self._keys, self._values, self._tasks)
