"""The dimensions of KV, and the tensors that a block of it consists of on every tier."""

from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

Block: TypeAlias = tuple[Tensor, ...]  # the KV of one block: a tensor for each of KVShape.parts


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

    def parts(self, block_size: int) -> tuple[torch.Size, torch.Size]:
        """The shapes of a block's tensors, the same on device, host and disk and in both layouts.

        keys     [layers, kv heads, head_dim, block size]
        values   [layers, kv heads, block size, head_dim]
        """
        heads = self.layers, self.kv_heads
        return torch.Size((*heads, self.head_dim, block_size)), torch.Size((*heads, block_size, self.head_dim))
