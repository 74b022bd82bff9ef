"""Rotary position embedding."""

from collections.abc import Sequence

import torch
from torch import Tensor

from kernels.native import LANES, native


class Rotary:
    """Rotates the two halves of each head by angles that grow with position.

    frequencies   radians per position of each pair, head_dim / 2 of them
    positions     how many positions the table covers
    amplitude     what cosines and sines are multiplied by
    device        where the table is kept; it is made on the CPU, in float64
    source        Su et al., 2021, in the half-split form of Llama's published weights
    """

    def __init__(
        self,
        frequencies: Sequence[float],
        positions: int,
        dtype: torch.dtype,
        amplitude: float = 1.0,
        device: torch.device | None = None,
    ) -> None:
        angle = torch.outer(
            torch.arange(positions, dtype=torch.float64), torch.tensor(frequencies, dtype=torch.float64)
        )
        # Repeated for both halves, the sine negative for the first: then a rotation is two products and a sum.
        self._cos = angle.cos().mul_(amplitude).repeat(1, 2).to(device, dtype)
        self._sin = torch.cat((-angle.sin(), angle.sin()), dim=1).mul_(amplitude).to(device, dtype)

    def at(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Factors for int64 positions [rows], each [rows, 1, head_dim]; taken once per forward pass."""
        return self._cos[positions].unsqueeze(1), self._sin[positions].unsqueeze(1)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x [rows, heads, head_dim] rotated by the angles of its rows."""
    library = native()
    whole = x.shape[-1] % (2 * LANES) == 0 and x.stride()[1:] == (x.shape[-1], 1)
    if library is not None and whole and x.is_cpu and x.dtype == torch.float32:
        return library.rotate(x, cos, sin)
    return (x * cos).addcmul_(x.roll(x.shape[-1] // 2, dims=-1), sin)
