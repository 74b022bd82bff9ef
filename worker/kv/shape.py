"""The dimensions of KV, and the tensors that a block of it consists of on every tier."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self, TypeAlias

import torch
from torch import Tensor

from kernels import KV_CODES, KVCodes, codes_dtype

Block: TypeAlias = tuple[Tensor, ...]  # the KV of one block: a tensor for each of KVShape.parts


class Part(NamedTuple):
    """One tensor of a block."""

    shape: torch.Size
    dtype: torch.dtype

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class KVShape:
    """The dimensions that KV tensors have in common.

    dtype   of KV unless it is kept as codes, and of what attention reads
    codes   the dtype of those, see kernels/kvcodes.py
    """

    layers: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype
    codes: torch.dtype | None = None

    def coded(self, codes: KVCodes | None) -> Self:
        """The same, with KV kept as these codes; None for none."""
        return replace(self, codes=codes and codes_dtype(codes))

    @property
    def kind(self) -> str:
        """What KV is kept as, by its name: see kinds.py."""
        names = {codes_dtype(codes): codes for codes in KV_CODES}
        return str(self.dtype).removeprefix("torch.") if self.codes is None else names[self.codes]

    @property
    def bytes_per_token(self) -> int:
        return sum(part.nbytes for part in self.parts(1))

    def parts(self, block_size: int) -> list[Part]:
        """A block's tensors, the same on device, host and disk and in both layouts.

        keys     [layers, kv heads, head_dim, block size]
        values   [layers, kv heads, block size, head_dim]
        peaks    bfloat16 [layers, kv heads, block size], of the keys and then of the values, where those are codes
        """
        heads, stored = (self.layers, self.kv_heads), self.codes or self.dtype
        keys = Part(torch.Size((*heads, self.head_dim, block_size)), stored)
        values = Part(torch.Size((*heads, block_size, self.head_dim)), stored)
        peaks = Part(torch.Size((*heads, block_size)), torch.bfloat16)
        return [keys, values] if self.codes is None else [keys, values, peaks, peaks]

    def expect(self, block: Sequence[Tensor], block_size: int) -> None:
        """ValueError unless these are the tensors of a block: a copy would broadcast or convert in silence."""
        for tensor, part in zip(block, self.parts(block_size), strict=True):
            if tensor.shape != part.shape or tensor.dtype != part.dtype:
                raise ValueError(f"a block of this model is {part.dtype} {list(part.shape)}")
