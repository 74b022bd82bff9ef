"""The layout of CUDA: a running sequence reads and writes blocks of the pool, wherever they are, through its table.

A hit on the device copies nothing, and a block that is full becomes the tree's where it lies.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import torch

from worker.attending import Attention, PagedAttention
from worker.kv.layout import CPU, Layout
from worker.kv.pool import BlockState
from worker.kv.radix import NOWHERE
from worker.kv.shape import Block, KVShape
from worker.kv.store import copy_block
from worker.rows import Row


class PagedLayout(Layout):
    """Tables into the pool.

    A block in a slot's table is held by that slot. It is either the tree's, or shared with a sequence that forked, and
    then only read; or the slot's own, which alone is ever written. Where a shared one would have to be written, the
    slot gets a copy first.
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
        # A sequence that runs alone can have all of the pool, and no more.
        context = min(context, blocks * block_size)
        super().__init__(shape, slots=slots, context=context, blocks=blocks, block_size=block_size, device=device)
        self._tables = np.zeros((slots, -(-context // block_size)), np.int64)
        self._lengths = [0] * slots

    def attention(self, rows: list[Row], windows: Sequence[int | None]) -> Attention:
        for row in rows:
            for index in range(row.start // self.block_size, self.blocks_for(row.start + row.count)):
                if index >= self._lengths[row.slot] or not self.pool.writable(int(self._tables[row.slot, index])):
                    raise RuntimeError(f"slot {row.slot} would write into a block that is not its own")
        return PagedAttention(rows, windows, self.store.parts, self.block_size, self._tables)

    def blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.block_size)

    def prepare(self, slot: int, start: int, end: int) -> bool:
        while self._lengths[slot] < self.blocks_for(end):
            block = self.take()
            if block is None:
                return False
            self._append(slot, block)
        shared = (
            index
            for index in range(start // self.block_size, self.blocks_for(end))
            if not self.pool.writable(int(self._tables[slot, index]))
        )
        return all(self._copy_on_write(slot, index) for index in shared)

    def view(self, slot: int, index: int) -> Block:
        return self.store.block(int(self._tables[slot, index]))

    def bring_in(self, slot: int, index: int, blocks: Sequence[int]) -> None:
        self._expect_end(slot, index)
        for block in blocks:
            self._append(slot, block)

    def expect(self, slot: int, index: int) -> Block | None:
        self._expect_end(slot, index)
        block = self.take()
        if block is None:
            return None
        self._append(slot, block)
        self.pool.copying_in(block)
        return self.store.block(block)

    def arrived(self, slot: int) -> None:
        for block in self.table(slot):
            if self.pool.state(block) == BlockState.COPYING_IN:
                self.pool.copied_in(block)

    def keep(self, slot: int, index: int, known: int) -> int | None:
        """Copies nothing: an equal block that the tree has takes the place of the slot's own."""
        if known != NOWHERE and known != self._tables[slot, index]:
            self._replace(slot, index, known)
        return int(self._tables[slot, index])

    def fork(self, source: int, slot: int, tokens: int) -> None:
        self._expect_end(slot, 0)
        for block in self.table(source)[: self.blocks_for(tokens)]:
            self._append(slot, block)

    def cut(self, slot: int, blocks: int) -> None:
        for block in self.table(slot)[blocks:]:
            self.pool.drop(block)
        self._lengths[slot] = min(blocks, self._lengths[slot])

    def held(self) -> dict[int, int]:
        return Counter(block for slot in range(self.slots.total) for block in self.table(slot))

    def table(self, slot: int) -> list[int]:
        """The slot's blocks, in order."""
        blocks: list[int] = self._tables[slot, : self._lengths[slot]].tolist()
        return blocks

    def _expect_end(self, slot: int, index: int) -> None:
        if index != self._lengths[slot]:
            raise RuntimeError(f"block {index} does not come next in slot {slot}")

    def _append(self, slot: int, block: int) -> None:
        self.pool.hold(block)
        self._tables[slot, self._lengths[slot]] = block
        self._lengths[slot] += 1

    def _replace(self, slot: int, index: int, block: int) -> None:
        self.pool.hold(block)
        self.pool.drop(int(self._tables[slot, index]))
        self._tables[slot, index] = block

    def _copy_on_write(self, slot: int, index: int) -> bool:
        block = self.take()
        if block is None:
            return False
        copy_block(self.store.block(block), self.store.block(int(self._tables[slot, index])))
        self._replace(slot, index, block)
        return True
