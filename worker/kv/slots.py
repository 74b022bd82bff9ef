"""The layout of the CPU: a contiguous slot for each running sequence, and blocks that are copied in and out.

A running sequence reads and writes its own slot, with the keys transposed (see kernels/attention.py): for the kernels
in C in tiles of positions, each in one piece of memory, for torch all in one. On this kind of machine copying 2,048
tokens takes 6 to 25 ms, computing them takes seconds, and attention over gathered pages is 5 to 8 times slower than
over slots.
"""

from collections.abc import Sequence

import torch

from kernels.native import LANES, SLOT_TILE, SlotBlocks, native
from worker.attending import Attention, RoundedAttention
from worker.kv.layout import CPU, Layout
from worker.kv.radix import NOWHERE
from worker.kv.shape import Block, KVShape
from worker.kv.store import copy_block, reserve
from worker.rows import Row
from worker.slot_attention import SlotAttention
from worker.slot_kernels import NativeSlotAttention


class SlotLayout(Layout):
    """Slots beside the pool.

    keys     [layers, slots, kv heads, context / pitch, head_dim, pitch]; the pitch is all of the context for torch
    values   [layers, slots, kv heads, context, head_dim]

    Both are in the dtype of the shape, which for the kernels in C may be float16: they round what they write, and widen
    what they read. Where blocks are codes, all that is written here is rounded to what codes
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
        self.library = native() if self.computed_in_c(shape, device) else None
        pitch = context if self.library is None else max(SLOT_TILE, block_size)
        heads, tiles = (shape.layers, slots, shape.kv_heads), -(-context // pitch)
        self.keys = reserve((*heads, tiles, shape.head_dim, pitch), shape.dtype, device)
        self.values = reserve((*heads, tiles * pitch, shape.head_dim), shape.dtype, device)
        # Codes are converted as they are copied, which is torch's affair.
        self._blocks = None
        if self.library is not None and shape.codes is None:
            self._blocks = SlotBlocks(self.library, self.keys, self.values, *self.store.parts)

    @staticmethod
    def computed_in_c(shape: KVShape, device: torch.device) -> bool:
        """Whether kernels in C attend over slots of this shape."""
        known = shape.dtype in (torch.float32, torch.float16) and shape.head_dim % LANES == 0
        return known and device.type == "cpu" and native() is not None

    def attention(self, rows: list[Row], windows: Sequence[int | None]) -> Attention:
        attention = self.over_slots(rows, windows)
        return attention if self.shape.codes is None else RoundedAttention(attention, self.shape.codes)

    def over_slots(self, rows: list[Row], windows: Sequence[int | None]) -> Attention:
        """As `attention`, of keys and values as they come."""
        if self.library is not None:
            return NativeSlotAttention(self.library, rows, windows, self.keys, self.values)
        return SlotAttention(rows, windows, self.keys[:, :, :, 0], self.values)

    def blocks_for(self, tokens: int) -> int:  # noqa: ARG002
        return 0

    def prepare(self, slot: int, start: int, end: int) -> bool:  # noqa: ARG002
        return True

    def view(self, slot: int, index: int) -> Block:
        start, size = index * self.block_size, self.block_size
        tile, first = divmod(start, self.keys.shape[-1])
        return self.keys[:, slot, :, tile, :, first : first + size], self.values[:, slot, :, start : start + size]

    def bring_in(self, slot: int, index: int, blocks: Sequence[int]) -> None:
        if self._blocks is not None:
            self._blocks.bring_in(slot, index, blocks)
            return
        for at, block in enumerate(blocks, index):
            copy_block(self.view(slot, at), self.store.block(block))

    def expect(self, slot: int, index: int) -> Block | None:
        return self.view(slot, index)

    def arrived(self, slot: int) -> None:
        """What came is in the slot itself."""

    def keep(self, slot: int, index: int, known: int) -> int | None:
        if known != NOWHERE:
            return known
        block = self.take()
        if block is not None and self._blocks is not None:
            self._blocks.take_out(slot, index, block)
        elif block is not None:
            copy_block(self.store.block(block), self.view(slot, index))
        return block

    def fork(self, source: int, slot: int, tokens: int) -> None:
        """One copy, of what takes a hundred times longer to compute."""
        pitch = self.keys.shape[-1]
        tiles, wide = -(-tokens // pitch), min(tokens, pitch)
        mine, theirs = (
            (self.keys[:, at, :, :tiles, :, :wide], self.values[:, at, :, :tokens]) for at in (slot, source)
        )
        copy_block(mine, theirs)

    def held(self) -> dict[int, int]:
        return {}

    def cut(self, slot: int, blocks: int) -> None:
        """What is left in the slot is overwritten before it is read."""
