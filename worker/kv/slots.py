"""The layout of the CPU: a contiguous slot for each running sequence, and blocks that are copied in and out.

A running sequence reads and writes its own slot, with the keys transposed (see kernels/attention.py). On this kind of
machine copying 2,048 tokens takes 6 to 25 ms, computing them takes seconds, and attention over gathered pages is 5 to 8
times slower than over slots.
"""

from collections.abc import Sequence

import torch

from worker.attending import Attention, RoundedAttention
from worker.kv.layout import CPU, Layout
from worker.kv.radix import NOWHERE
from worker.kv.shape import Block, KVShape
from worker.kv.store import copy_block, reserve
from worker.rows import Row
from worker.slot_attention import SlotAttention


class SlotLayout(Layout):
    """Slots beside the pool.

    keys     [layers, slots, kv heads, head_dim, context]
    values   [layers, slots, kv heads, context, head_dim]

    Both are in the dtype that is computed in. Where blocks are codes, all that is written here is rounded to what codes
    can hold, and converted as it is copied.
    """

    def __init__(
        self,
        shape: KVShape,
        *,
        slots: int,
        context: int,
        blocks: int,
        block_size: int,
        device: torch.device = CPU,
    ) -> None:
        super().__init__(shape, slots=slots, context=context, blocks=blocks, block_size=block_size, device=device)
        heads = shape.layers, slots, shape.kv_heads
        self.keys = reserve((*heads, shape.head_dim, context), shape.dtype, device)
        self.values = reserve((*heads, context, shape.head_dim), shape.dtype, device)

    def attention(self, rows: list[Row], windows: Sequence[int | None]) -> Attention:
        attention = self.over_slots(rows, windows)
        return attention if self.shape.codes is None else RoundedAttention(attention, self.shape.codes)

    def over_slots(self, rows: list[Row], windows: Sequence[int | None]) -> Attention:
        """As `attention`, of keys and values as they come."""
        return SlotAttention(rows, windows, self.keys, self.values)

    def blocks_for(self, tokens: int) -> int:  # noqa: ARG002
        return 0

    def prepare(self, slot: int, start: int, end: int) -> bool:  # noqa: ARG002
        return True

    def bring_in(self, slot: int, index: int, block: int) -> None:
        copy_block(self._place(slot, index), self.store.block(block))

    def expect(self, slot: int, index: int) -> Block | None:
        return self._place(slot, index)

    def arrived(self, slot: int) -> None:
        """What came is in the slot itself."""

    def keep(self, slot: int, index: int, known: int) -> int | None:
        if known != NOWHERE:
            return known
        block = self.take()
        if block is not None:
            copy_block(self.store.block(block), self._place(slot, index))
        return block

    def fork(self, source: int, slot: int, tokens: int) -> None:
        """One copy, of what takes a hundred times longer to compute."""
        mine, theirs = ((self.keys[:, at, :, :, :tokens], self.values[:, at, :, :tokens]) for at in (slot, source))
        copy_block(mine, theirs)

    def held(self) -> dict[int, int]:
        return {}

    def cut(self, slot: int, blocks: int) -> None:
        """What is left in the slot is overwritten before it is read."""

    def _place(self, slot: int, index: int) -> Block:
        """The slot's block at index as views."""
        part = slice(index * self.block_size, (index + 1) * self.block_size)
        return self.keys[:, slot, :, :, part], self.values[:, slot, :, part]
