"""Blocks of KV that are copied into slots, and out of them."""

import ctypes
from collections.abc import Sequence

from torch import Tensor

from kernels.native.library import Native

_POINTER, _LONG = ctypes.c_void_p, ctypes.c_long


class _Store(ctypes.Structure):
    """`store` of blocks.c."""

    _fields_ = [(name, _POINTER) for name in ("keys", "values", "block_keys", "block_values")] + [
        (name, _LONG) for name in ("layers", "slots", "kv_heads", "head_dim", "context", "pitch", "size", "bytes")
    ]


class SlotBlocks:
    """Slots and blocks of the same dtype.

    keys           [layers, slots, kv heads, context / pitch, head_dim, pitch]
    values         [layers, slots, kv heads, context, head_dim]
    block_keys     [blocks, layers, kv heads, head_dim, size], of which the pitch is a multiple
    block_values   [blocks, layers, kv heads, size, head_dim]
    """

    def __init__(self, library: Native, keys: Tensor, values: Tensor, block_keys: Tensor, block_values: Tensor) -> None:
        layers, slots, kv_heads, tiles, head_dim, pitch = keys.shape
        self._library = library
        self._held = keys, values, block_keys, block_values  # the structure has their addresses alone
        addresses = (tensor.data_ptr() for tensor in self._held)
        size = block_keys.shape[-1]
        self._store = _Store(
            *addresses, layers, slots, kv_heads, head_dim, tiles * pitch, pitch, size, keys.element_size()
        )

    def bring_in(self, slot: int, first: int, blocks: Sequence[int]) -> None:
        """The slot's blocks from `first` on become these."""
        self._library.copy_blocks(self._store, blocks, slot, first, out=False)

    def take_out(self, slot: int, index: int, block: int) -> None:
        """A block becomes the slot's at index."""
        self._library.copy_blocks(self._store, [block], slot, index, out=True)
