"""The host tier: blocks in main memory, one step behind the device."""

from enum import IntEnum
from typing import Final

import torch

from worker.kv.shape import Block, KVShape
from worker.kv.store import BlockStore, copy_block

_MAIN_MEMORY: Final = torch.device("cpu")


class HostState(IntEnum):
    """FREE -> FILLING (taken, a copy into it may be under way) -> READY <-> READING -> READY -> FREE."""

    FREE = 0
    FILLING = 1
    READY = 2
    READING = 3


class HostTier:
    """An arena of blocks, and the books of who may touch which. What goes where is its caller's affair.

    total    blocks that fit into capacity_bytes; 0 means that the tier is off, and `take` always says None
    pinned   page-locked memory for copies to and from CUDA, all of it reserved at once; else pages are provided when
             they are first written

    On CUDA copies outlive the call that starts them. A block stays FILLING until the caller has seen that the copy in
    has ended (`ready`), and READING until each copy out has (`done`); until then it can't be given back, so no transfer
    finds another block's bytes under way. Misuse is a bug of ours and raises RuntimeError at once.

    Only the engine's thread calls it.
    """

    def __init__(self, shape: KVShape, block_size: int, capacity_bytes: int, *, pinned: bool = False) -> None:
        self.block_bytes = shape.bytes_per_token * block_size
        self.total = capacity_bytes // self.block_bytes
        self._shape, self._block_size = shape, block_size
        self._store = BlockStore(shape, self.total, block_size, _MAIN_MEMORY, pinned=pinned)
        self._states = bytearray(self.total)
        self._readers: dict[int, int] = {}
        self._free = list(range(self.total - 1, -1, -1))

    @property
    def free(self) -> int:
        """How many blocks are free."""
        return len(self._free)

    @property
    def bytes_used(self) -> int:
        return (self.total - self.free) * self.block_bytes

    def state(self, index: int) -> HostState:
        return HostState(self._states[index])

    def take(self) -> int | None:
        """A block in state FILLING, or None when all are in use."""
        if not self._free:
            return None
        index = self._free.pop()
        self._move(index, HostState.FILLING, HostState.FREE)
        return index

    def write(self, index: int, block: Block) -> None:
        """Copies a block in; a copy from CUDA into pinned memory is only queued, on the current stream.

        errors   RuntimeError unless FILLING; ValueError for tensors that are not a block of this model
        """
        self._expect(index, HostState.FILLING)
        self._shape.expect(block, self._block_size)
        copy_block(self._store.block(index), block)

    def ready(self, index: int) -> None:
        """The copy in has ended."""
        self._move(index, HostState.READY, HostState.FILLING)

    def read(self, index: int) -> Block:
        """The block as views, one reader more; each read is paired with a `done`."""
        self._move(index, HostState.READING, HostState.READY, HostState.READING)
        self._readers[index] = self._readers.get(index, 0) + 1
        return self._store.block(index)

    def done(self, index: int) -> None:
        """One reader's copy out has ended; after the last, the block is READY."""
        self._expect(index, HostState.READING)
        self._readers[index] -= 1
        if not self._readers[index]:
            del self._readers[index]
            self._move(index, HostState.READY, HostState.READING)

    def give_back(self, index: int) -> None:
        """The block is free: it was READY, or FILLING and its copy did not come about."""
        self._move(index, HostState.FREE, HostState.READY, HostState.FILLING)
        self._free.append(index)

    def spoil(self, index: int) -> None:
        """Fills a block that holds nothing yet, or no more, with NaN, so that a test sees any read of it."""
        self._expect(index, HostState.FREE, HostState.FILLING)
        self._store.spoil(index)

    def check(self) -> None:
        """The books; RuntimeError when they do not balance."""
        if sorted(self._free) != [index for index in range(self.total) if self._states[index] == HostState.FREE]:
            raise RuntimeError("host tier: the free list does not match the block states")
        reading = {index for index in range(self.total) if self._states[index] == HostState.READING}
        if reading != self._readers.keys() or any(count < 1 for count in self._readers.values()):
            raise RuntimeError("host tier: the readers do not match the block states")

    def _move(self, index: int, after: HostState, *before: HostState) -> None:
        self._expect(index, *before)
        self._states[index] = after

    def _expect(self, index: int, *states: HostState) -> None:
        if self._states[index] not in states:
            wanted = " or ".join(state.name for state in states)
            raise RuntimeError(f"host block {index} is {self.state(index).name}, not {wanted}")
