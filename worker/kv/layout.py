"""How the KV of running sequences lies in memory: what the rest of the worker may know of it."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Final

import torch

from worker.attending import Attention
from worker.kv.freeslots import FreeSlots
from worker.kv.pool import BlockPool
from worker.kv.shape import Block, KVShape
from worker.kv.store import BlockStore
from worker.rows import Row

CPU: Final = torch.device("cpu")


class Layout(ABC):
    """The KV of running sequences, each in a slot, and of the blocks that outlive them.

    shape, block_size   dimensions
    context             the most tokens that a sequence may have
    device              where the tensors are
    slots               which slots are free
    pool, store         the blocks: their books, and their KV
    take                gives a block of the pool in state FILLING, None when there is none; who knows what the blocks
                        are for puts eviction behind it

    Seen from here a slot is a row of blocks, counted by `index` from 0. Whether these are blocks of the pool or a copy
    of them is the layout's own affair. Only the engine's thread calls, between forward passes; a slot is taken before
    it is used, and left once.
    """

    def __init__(
        self, shape: KVShape, *, slots: int, context: int, blocks: int, block_size: int, device: torch.device = CPU
    ) -> None:
        self.shape = shape
        self.context = context
        self.block_size = block_size
        self.device = device
        self.slots = FreeSlots(slots)
        self.pool = BlockPool(blocks)
        self.store = BlockStore(shape, blocks, block_size, device)
        self.take: Callable[[], int | None] = self.pool.take

    @abstractmethod
    def attention(self, rows: list[Row], windows: Sequence[int | None]) -> Attention:
        """The attention of one forward pass over these rows, those of one token first.

        windows   of each layer, how many positions a query sees, its own included; None for all
        before    `prepare` has said that the positions of each row may be written
        """

    @abstractmethod
    def blocks_for(self, tokens: int) -> int:
        """How many blocks of the pool a sequence of so many tokens holds while it runs."""

    @abstractmethod
    def prepare(self, slot: int, start: int, end: int) -> bool:
        """Positions start .. end - 1 of the slot may be written, and nobody else sees it; False when there is no room.

        What lies before start stays as it is. Where a sequence steps back, it may prepare the same positions again.
        """

    @abstractmethod
    def view(self, slot: int, index: int) -> Block:
        """The slot's block at index as views, to be read before anything else is done."""

    @abstractmethod
    def bring_in(self, slot: int, index: int, blocks: Sequence[int]) -> None:
        """The slot's blocks from index on, which come next, are these of the pool, whose KV is there."""

    @abstractmethod
    def expect(self, slot: int, index: int) -> Block | None:
        """Where another thread shall write the slot's block at index, which comes next; None when there is no room.

        Until `arrived` the slot is neither computed on nor left.
        """

    @abstractmethod
    def arrived(self, slot: int) -> None:
        """Nobody writes into the blocks that were expected any more. Those that did not come are to be cut."""

    @abstractmethod
    def keep(self, slot: int, index: int, known: int) -> int | None:
        """The block of the pool that has the KV of the slot's block at index, which is full, from now on.

        known     a block that has this KV already, NOWHERE if none is known
        returns   `known` if there is one; else one in state FILLING; None when there is no room
        """

    @abstractmethod
    def fork(self, source: int, slot: int, tokens: int) -> None:
        """The slot, which is empty, begins with the first `tokens` positions of another one, which goes on."""

    @abstractmethod
    def cut(self, slot: int, blocks: int) -> None:
        """The slot keeps its first `blocks` blocks only."""

    @abstractmethod
    def held(self) -> dict[int, int]:
        """The blocks of the pool that slots hold, and how many slots each; for checks."""

    def leave(self, slot: int) -> None:
        """The slot is free."""
        self.cut(slot, 0)
        self.slots.give_back(slot)
