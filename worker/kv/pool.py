"""The pool of KV blocks: whose each block is, in typed states, and how many running sequences hold it."""

from collections.abc import Callable
from enum import IntEnum


class BlockState(IntEnum):
    """What may be done with a block.

    FREE          nothing: it is nobody's and holds nothing
    FILLING       its only holder may write into it
    COPYING_IN    the loader writes into it, nobody else may read or write
    READY         it is the radix tree's, and is only read
    COPYING_OUT   as READY, and a copy to another tier is reading it

    FREE -> FILLING -> READY -> FREE; FILLING <-> COPYING_IN; READY <-> COPYING_OUT; a block that did not come into the
    tree is FREE again when nobody holds it any more.
    """

    FREE = 0
    FILLING = 1
    COPYING_IN = 2
    READY = 3
    COPYING_OUT = 4


class BlockPool:
    """A fixed number of blocks; every operation is O(1).

    on_free   told of each block that becomes free

    Misuse (giving back a free block, or one that is being read) is a bug of ours and raises RuntimeError at once: every
    public KV corruption that we know of began as a block on the free list twice.
    """

    def __init__(self, blocks: int) -> None:
        if blocks < 1:
            raise ValueError("a block pool needs at least one block")
        self.total = blocks
        self.on_free: Callable[[int], None] | None = None
        self._states = bytearray(blocks)
        self._free = list(range(blocks - 1, -1, -1))
        self._holders: dict[int, int] = {}

    @property
    def free(self) -> int:
        """How many blocks are free."""
        return len(self._free)

    @property
    def available(self) -> int:
        """How many blocks no running sequence holds: the free ones, and those of the tree that could be evicted."""
        return self.total - len(self._holders)

    def state(self, block: int) -> BlockState:
        return BlockState(self._states[block])

    def holders(self, block: int) -> int:
        """How many running sequences read the block, or write it."""
        return self._holders.get(block, 0)

    def writable(self, block: int) -> bool:
        """Whether the one sequence that holds the block may write into it."""
        return self._states[block] == BlockState.FILLING and self.holders(block) == 1

    def take(self) -> int | None:
        """A block in state FILLING, or None when none is free."""
        if not self._free:
            return None
        block = self._free.pop()
        self._move(block, BlockState.FREE, BlockState.FILLING)
        return block

    def hold(self, block: int) -> None:
        """One more running sequence has the block in its table."""
        if self._states[block] not in (BlockState.FILLING, BlockState.READY, BlockState.COPYING_OUT):
            raise RuntimeError(f"block {block} is {self.state(block).name}; it has nothing to hold")
        self._holders[block] = self.holders(block) + 1

    def drop(self, block: int) -> None:
        """One running sequence less. The last one's block is free unless it has come into the tree."""
        if self._states[block] == BlockState.COPYING_IN or block not in self._holders:
            raise RuntimeError(f"block {block} is {self.state(block).name} with {self.holders(block)} holders")
        self._holders[block] -= 1
        if self._holders[block]:
            return
        del self._holders[block]
        if self._states[block] == BlockState.FILLING:
            self._release(block, BlockState.FILLING)

    def ready(self, block: int) -> None:
        """The block is full and becomes the tree's; from now on nobody writes into it."""
        if self.holders(block) > 1:
            raise RuntimeError(f"block {block} is shared outside the tree")
        self._move(block, BlockState.FILLING, BlockState.READY)

    def give_back(self, block: int) -> None:
        """The tree has no more use for the block."""
        if block in self._holders:
            raise RuntimeError(f"block {block} is held by {self.holders(block)} running sequences")
        self._release(block, BlockState.READY)

    def copying_in(self, block: int) -> None:
        self._move(block, BlockState.FILLING, BlockState.COPYING_IN)

    def copied_in(self, block: int) -> None:
        self._move(block, BlockState.COPYING_IN, BlockState.FILLING)

    def copying_out(self, block: int) -> None:
        self._move(block, BlockState.READY, BlockState.COPYING_OUT)

    def copied_out(self, block: int) -> None:
        self._move(block, BlockState.COPYING_OUT, BlockState.READY)

    def check(self, trees: list[int], held: dict[int, int]) -> None:
        """The books; RuntimeError when they do not balance.

        trees   the blocks that the radix tree has
        held    the blocks in the tables of running sequences, and in how many
        """
        kept = (BlockState.READY, BlockState.COPYING_OUT)
        if sorted(self._free) != self._of(BlockState.FREE):
            raise RuntimeError("block pool: the free list does not match the block states")
        if sorted(trees) != self._of(*kept):
            raise RuntimeError("block pool: blocks in the tree and blocks in use differ")
        if held != self._holders:
            raise RuntimeError("block pool: the tables do not match the holders")
        if any(block not in held for block in self._of(BlockState.FILLING, BlockState.COPYING_IN)):
            raise RuntimeError("block pool: a block is being filled and nobody holds it")

    def _of(self, *states: BlockState) -> list[int]:
        return [block for block in range(self.total) if self._states[block] in states]

    def _release(self, block: int, before: BlockState) -> None:
        self._move(block, before, BlockState.FREE)
        self._free.append(block)
        if self.on_free is not None:
            self.on_free(block)

    def _move(self, block: int, before: BlockState, after: BlockState) -> None:
        if self._states[block] != before:
            raise RuntimeError(f"block {block} is {self.state(block).name}, not {before.name}")
        self._states[block] = after
