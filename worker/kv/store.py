"""The KV of the pool's blocks, and how a block is copied."""

import math
import mmap
import sys
from contextlib import suppress

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kernels import as_codes, as_values
from worker.kv.shape import Block, KVShape


class BlockStore:
    """One tensor for each part of a block (see KVShape.parts), [blocks, *part], on one device.

    On the CPU memory is reserved here and touched, page by page, when a block is first written.

    pinned   page-locked memory, all of it touched at once
    """

    def __init__(
        self, shape: KVShape, blocks: int, block_size: int, device: torch.device, *, pinned: bool = False
    ) -> None:
        self.parts = tuple(
            reserve((blocks, *part.shape), part.dtype, device, pinned=pinned) for part in shape.parts(block_size)
        )

    def block(self, block: int) -> Block:
        """A block's KV as views."""
        return tuple(part[block] for part in self.parts)

    def spoil(self, block: int) -> None:
        """Fills a block that holds nothing with NaN, so that a test sees any read of it. Of codes the peaks say so."""
        for part in self.block(block):
            if part.is_floating_point():
                part.fill_(torch.nan)


def copy_block(into: Block, source: Block) -> None:
    """Copies part by part, whatever the strides; on return the copy is made, or queued if CUDA has a part in it.

    Where only one of them is codes the other is keys and values: from codes come their values, and rounded values give
    the very codes that they come from.
    """
    if len(source) > len(into):
        source = as_values(source, into[0].dtype)
    elif len(source) < len(into):
        keys, values = source
        source = as_codes(keys.contiguous(), values.contiguous(), into[0].dtype)
    for target, part in zip(into, source, strict=True):
        if target.is_cpu and part.is_cpu:
            # Through numpy: torch would split each into threads, which costs more than these copies take and fights
            # with the engine's own.
            raw(target)[...] = raw(part)
        else:
            target.copy_(part, non_blocking=True)


def reserve(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device, *, pinned: bool = False) -> Tensor:
    """Zeros; on the CPU the system provides their pages when they are first written, where torch.zeros would touch
    gigabytes at once."""
    if device.type != "cpu" or pinned or 0 in shape:
        return torch.zeros(shape, dtype=dtype, device=device, pin_memory=pinned)
    return torch.from_numpy(_untouched(math.prod(shape) * dtype.itemsize)).view(dtype).view(shape)


def raw(tensor: Tensor) -> "NDArray[np.signedinteger]":
    """The same memory for numpy, as integers of the same size: numpy knows no bfloat16, and a copy need not."""
    integers = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.dtype.itemsize]
    return tensor.view(integers).numpy()


def _untouched(size: int) -> NDArray[np.uint8]:
    """Zeros, in memory pages of the usual size.

    NumPy asks for huge pages where the kernel has them. A slot's keys are transposed: its tokens are columns of rows as
    long as the context, so that a few of them would touch every huge page of the slot.
    """
    if sys.platform != "linux":
        return np.zeros(size, np.uint8)
    memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # from a kernel that has no huge pages
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(memory, np.uint8)
