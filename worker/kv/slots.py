"""The KV tensors on the CPU: a contiguous slot for each running sequence, and the blocks that outlive it.

A running sequence reads and writes its own slot, with the keys transposed (see kernels/attention.py); a prefix hit is
copied in from blocks, and finished blocks are copied out. On this kind of machine copying 2,048 tokens takes 6 to
25 ms, computing them takes seconds, and attention over gathered pages is 5 to 8 times slower than over slots.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class KVShape:
    """The dimensions that KV tensors have in common."""

    layers: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype

    @property
    def bytes_per_token(self) -> int:
        return 2 * self.layers * self.kv_heads * self.head_dim * self.dtype.itemsize


class Slots:
    """Slots and blocks of one model.

    keys          [layers, slots, kv heads, head_dim, context]
    values        [layers, slots, kv heads, context, head_dim]
    block keys    [blocks, layers, kv heads, head_dim, block size]
    block values  [blocks, layers, kv heads, block size, head_dim]

    Memory is reserved here and touched, page by page, when a sequence first writes to it.
    """

    def __init__(self, shape: KVShape, *, slots: int, context: int, blocks: int, block_size: int) -> None:
        layers, heads, dim = shape.layers, shape.kv_heads, shape.head_dim
        self.shape = shape
        self.context = context
        self.block_size = block_size
        self.keys = _reserve(layers, slots, heads, dim, context, dtype=shape.dtype)
        self.values = _reserve(layers, slots, heads, context, dim, dtype=shape.dtype)
        self._block_keys = _reserve(blocks, layers, heads, dim, block_size, dtype=shape.dtype)
        self._block_values = _reserve(blocks, layers, heads, block_size, dim, dtype=shape.dtype)
        self._free = list(range(slots - 1, -1, -1))
        self.total = slots

    @property
    def free(self) -> int:
        return len(self._free)

    def take(self) -> int | None:
        """The lowest free slot, so that running slots stay adjacent and decode attention covers few idle ones."""
        if not self._free:
            return None
        slot = min(self._free)
        self._free.remove(slot)
        return slot

    def give_back(self, slot: int) -> None:
        if slot in self._free:
            raise RuntimeError(f"slot {slot} was given back twice")
        self._free.append(slot)

    def copy_in(self, slot: int, blocks: list[int]) -> None:
        """The slot begins with the KV of these blocks, in order.

        One block at a time: gathering them first would allocate, and page in, as much memory again.
        """
        for index, block in enumerate(blocks):
            start, end = index * self.block_size, (index + 1) * self.block_size
            self.keys[:, slot, :, :, start:end] = self._block_keys[block]
            self.values[:, slot, :, start:end] = self._block_values[block]

    def copy_out(self, slot: int, position: int, block: int) -> None:
        """The block takes the KV of one block of tokens that begins at position in the slot."""
        end = position + self.block_size
        self._block_keys[block] = self.keys[:, slot, :, :, position:end]
        self._block_values[block] = self.values[:, slot, :, position:end]

    def spoil(self, block: int) -> None:
        """Fills a freed block with NaN, so that a test sees any read of it."""
        self._block_keys[block] = torch.nan
        self._block_values[block] = torch.nan

    def read_block(self, block: int) -> tuple[Tensor, Tensor]:
        """Copies of a block's keys and values, for checks."""
        return self._block_keys[block].clone(), self._block_values[block].clone()


def _reserve(*shape: int, dtype: torch.dtype) -> Tensor:
    """Zeros whose pages the system provides when they are first written; torch.zeros would touch gigabytes at once."""
    return torch.from_numpy(np.zeros(math.prod(shape) * dtype.itemsize, dtype=np.uint8)).view(dtype).view(shape)
