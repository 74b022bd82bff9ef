"""The KV tensors on the CPU: a contiguous slot for each running sequence, and the blocks that outlive it.

A running sequence reads and writes its own slot, with the keys transposed (see kernels/attention.py); a prefix hit is
copied in from blocks, and finished blocks are copied out. On this kind of machine copying 2,048 tokens takes 6 to
25 ms, computing them takes seconds, and attention over gathered pages is 5 to 8 times slower than over slots.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
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
        # Copies go through numpy: torch would split each into threads, which costs more than these copies take and
        # fights with the engine's own.
        self._raw_keys, self._raw_values = _raw(self.keys), _raw(self.values)
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
            self.put(slot, index * self.block_size, *self.block(block))

    def put(self, slot: int, position: int, keys: Tensor, values: Tensor) -> None:
        """The slot takes the KV of one block, from position on; keys and values shaped as in `block`.

        The slot's owner may call it from a thread of its own while nothing else touches the slot.
        """
        end = position + self.block_size
        self._raw_keys[:, slot, :, :, position:end] = _raw(keys)
        self._raw_values[:, slot, :, position:end] = _raw(values)

    def copy_out(self, slot: int, position: int, block: int) -> None:
        """The block takes the KV of one block of tokens that begins at position in the slot."""
        end = position + self.block_size
        keys, values = self.block(block)
        _raw(keys)[...] = self._raw_keys[:, slot, :, :, position:end]
        _raw(values)[...] = self._raw_values[:, slot, :, position:end]

    def spoil(self, block: int) -> None:
        """Fills a freed block with NaN, so that a test sees any read of it."""
        self._block_keys[block] = torch.nan
        self._block_values[block] = torch.nan

    def block(self, block: int) -> tuple[Tensor, Tensor]:
        """A block's KV as views: keys [layers, kv heads, head_dim, block size], values [.., block size, head_dim]."""
        return self._block_keys[block], self._block_values[block]


def _reserve(*shape: int, dtype: torch.dtype) -> Tensor:
    """Zeros whose pages the system provides when they are first written; torch.zeros would touch gigabytes at once."""
    return torch.from_numpy(np.zeros(math.prod(shape) * dtype.itemsize, dtype=np.uint8)).view(dtype).view(shape)


def _raw(tensor: Tensor) -> NDArray[np.signedinteger]:
    """The same memory for numpy, as integers of the same size: numpy knows no bfloat16, and a copy need not."""
    integers = torch.int32 if tensor.dtype.itemsize == 4 else torch.int16
    return tensor.view(integers).numpy()
