"""The host tier: blocks in main memory, one step behind the device."""

import math
from enum import IntEnum

import numpy as np
import torch
from torch import Tensor

from worker.kv.shape import KVShape


class HostState(IntEnum):
    """FREE -> FILLING (taken, a copy into it may be under way) -> READY <-> READING -> READY -> FREE."""

    FREE = 0
    FILLING = 1
    READY = 2
    READING = 3


class HostTier:
    """An arena of blocks, and the books of who may touch which. What goes where is its caller's affair.

    keys     [blocks, layers, kv heads, head_dim, block size]
    values   [blocks, layers, kv heads, block size, head_dim]
    total    blocks that fit into capacity_bytes; 0 means that the tier is off, and `take` always says None
    pinned   page-locked memory for copies to and from CUDA, all of it reserved at once; else pages are provided when
             they are first written

    On CUDA copies outlive the call that starts them. A block stays FILLING until the caller has seen that the copy in
    has ended (`ready`), and READING until each copy out has (`done`); until then it can't be given back, so no transfer
    finds another block's bytes under way. Misuse is a bug of ours and raises RuntimeError at once.

    Only the engine's thread calls it.
    """

    def __init__(self, shape: KVShape, block_size: int, capacity_bytes: int, *, pinned: bool = False) -> None:
        layers, heads, dim = shape.layers, shape.kv_heads, shape.head_dim
        self.block_bytes = shape.bytes_per_token * block_size
        self.total = capacity_bytes // self.block_bytes
        self._keys = _reserve(self.total, layers, heads, dim, block_size, dtype=shape.dtype, pinned=pinned)
        self._values = _reserve(self.total, layers, heads, block_size, dim, dtype=shape.dtype, pinned=pinned)
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

    def write(self, index: int, keys: Tensor, values: Tensor) -> None:
        """Copies a block in; a copy from CUDA into pinned memory is only queued, on the current stream.

        keys     [layers, kv heads, head_dim, block size]
        values   [layers, kv heads, block size, head_dim]
        errors   RuntimeError unless FILLING; ValueError for another shape or dtype, which would broadcast or convert
        """
        self._expect(index, HostState.FILLING)
        for into, part in ((self._keys[index], keys), (self._values[index], values)):
            if into.shape != part.shape or into.dtype != part.dtype:
                raise ValueError(f"a host block is {into.dtype} {list(into.shape)}")
            into.copy_(part, non_blocking=True)

    def ready(self, index: int) -> None:
        """The copy in has ended."""
        self._move(index, HostState.READY, HostState.FILLING)

    def read(self, index: int) -> tuple[Tensor, Tensor]:
        """Keys and values as views, one reader more; each read is paired with a `done`."""
        self._move(index, HostState.READING, HostState.READY, HostState.READING)
        self._readers[index] = self._readers.get(index, 0) + 1
        return self._keys[index], self._values[index]

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
        self._keys[index] = torch.nan
        self._values[index] = torch.nan

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


def _reserve(*shape: int, dtype: torch.dtype, pinned: bool) -> Tensor:
    """Zeros; unless pinned, pages come when they are first written, where torch.zeros would touch gigabytes at once."""
    if pinned or 0 in shape:
        return torch.zeros(shape, dtype=dtype, pin_memory=pinned)
    return torch.from_numpy(np.zeros(math.prod(shape) * dtype.itemsize, dtype=np.uint8)).view(dtype).view(shape)
