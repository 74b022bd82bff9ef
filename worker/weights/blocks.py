"""Quantised numbers as they lie in a file, taken apart but not yet multiplied out."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class QuantBlocks:
    """A matrix in blocks of `size` adjacent values of a row: value = code * scale + minimum.

    codes     uint8 or int8 [rows, columns]
    scale     float32 [rows, columns / size]
    minimum   float32 of the same shape; None where values are multiples of the scale alone
    bits      how many bits a code has: 4, 5, 6 or 8; codes that are signed in the file stay signed
    """

    codes: Tensor
    scale: Tensor
    minimum: Tensor | None
    size: int
    bits: int

    def dequantize(self) -> Tensor:
        """float32 [rows, columns], bit for bit what ggml's own arithmetic gives."""
        rows, columns = self.codes.shape
        values = self.codes.to(torch.float32).view(rows, columns // self.size, self.size)
        values.mul_(self.scale.unsqueeze(-1))
        if self.minimum is not None:
            values.add_(self.minimum.unsqueeze(-1))
        return values.view(rows, columns)

    def rows(self, order: Tensor) -> "QuantBlocks":
        """The same matrix with its rows in another order: int64 [rows]."""
        minimum = None if self.minimum is None else self.minimum[order]
        return QuantBlocks(self.codes[order], self.scale[order], minimum, self.size, self.bits)
