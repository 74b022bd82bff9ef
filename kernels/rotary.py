"""Rotary position embedding."""

import torch
from torch import Tensor


class Rotary:
    """Rotates the two halves of each head by an angle that grows with position.

    head_dim    even
    positions   how many positions the table covers
    base        theta of the model
    source      Su et al., 2021, in the half-split form of Llama's published weights
    """

    def __init__(self, head_dim: int, positions: int, base: float, dtype: torch.dtype) -> None:
        inverse = base ** -(torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
        angle = torch.outer(torch.arange(positions, dtype=torch.float64), inverse)
        self._cos = angle.cos().to(dtype)
        self._sin = angle.sin().to(dtype)

    def at(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines for int64 positions [rows], each [rows, 1, head_dim / 2]; taken once per forward pass."""
        return self._cos[positions].unsqueeze(1), self._sin[positions].unsqueeze(1)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x [rows, heads, head_dim] rotated by the angles of its rows."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
