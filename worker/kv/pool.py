"""The pool of KV blocks: who owns which block number, in typed states."""

from collections.abc import Callable
from enum import IntEnum


class BlockState(IntEnum):
    """FREE -> FILLING (taken, its KV is being copied) -> READY (in the radix tree) -> FREE."""

    FREE = 0
    FILLING = 1
    READY = 2


class BlockPool:
    """A fixed number of blocks; taking and giving back one is O(1).

    on_free   told of each block that becomes free

    Misuse (giving back a free block, filling a ready one) is a bug of ours and raises RuntimeError at once: every
    public KV corruption that we know of began as a block on the free list twice.
    """

    def __init__(self, blocks: int) -> None:
        if blocks < 1:
            raise ValueError("a block pool needs at least one block")
        self.total = blocks
        self.on_free: Callable[[int], None] | None = None
        self._states = bytearray(blocks)
        self._free = list(range(blocks - 1, -1, -1))

    @property
    def free(self) -> int:
        """How many blocks are free."""
        return len(self._free)

    def state(self, block: int) -> BlockState:
        return BlockState(self._states[block])

    def take(self) -> int | None:
        """A block in state FILLING, or None when the pool is full."""
        if not self._free:
            return None
        block = self._free.pop()
        self._move(block, BlockState.FREE, BlockState.FILLING)
        return block

    def ready(self, block: int) -> None:
        self._move(block, BlockState.FILLING, BlockState.READY)

    def give_back(self, block: int) -> None:
        self._move(block, BlockState.READY, BlockState.FREE)
        self._free.append(block)
        if self.on_free is not None:
            self.on_free(block)

    def check(self) -> None:
        """The books: the free list holds each free block once and nothing else. RuntimeError if they don't balance."""
        if sorted(self._free) != [block for block in range(self.total) if self._states[block] == BlockState.FREE]:
            raise RuntimeError("block pool: the free list does not match the block states")

    def _move(self, block: int, before: BlockState, after: BlockState) -> None:
        if self._states[block] != before:
            raise RuntimeError(f"block {block} is {self.state(block).name}, not {before.name}")
        self._states[block] = after
