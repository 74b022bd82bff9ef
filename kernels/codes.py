"""Weights as small integers with scales, and how weights that are not stored so are brought to them."""

from dataclasses import dataclass

import torch
from torch import Tensor

_LEVELS = 15  # the largest code of 4 bits
# A group's range is also tried narrower than it is: the few values that are cut off cost less than finer steps gain.
_SHARES = (1.0, 0.95, 0.9, 0.85, 0.8)


@dataclass(frozen=True, slots=True)
class GroupCodes:
    """A matrix of 4-bit codes: value = code * scale + minimum, in groups of `size` adjacent values of a row.

    codes            uint8 [rows, columns], 0 to 15
    scale, minimum   float32 [rows, columns / size]
    """

    codes: Tensor
    scale: Tensor
    minimum: Tensor
    size: int


@dataclass(frozen=True, slots=True)
class RowCodes:
    """A matrix of 8-bit codes: value = code * scale of its row.

    codes   int8 or float8_e4m3fn [rows, columns]
    scale   float32 [rows]
    """

    codes: Tensor
    scale: Tensor


def in_groups(weight: Tensor, size: int = 32) -> GroupCodes:
    """The codes whose values lie nearest to a matrix, by squares, among a few ranges for each group."""
    rows, columns = weight.shape
    groups = weight.float().view(rows, columns // size, size)
    low, high = groups.amin(-1, keepdim=True), groups.amax(-1, keepdim=True)
    middle, half = (low + high) / 2, (high - low) / 2
    best = _Fit(groups, middle, half)
    for share in _SHARES[1:]:
        best = best.or_better(_Fit(groups, middle, half * share))
    return GroupCodes(
        best.codes.view(rows, columns).to(torch.uint8), best.scale.squeeze(-1), best.low.squeeze(-1), size
    )


def in_rows(matrix: Tensor) -> RowCodes:
    """Symmetric codes from -127 to 127, one scale a row: of weights, or of activations, where a row is a token."""
    scale = _row_scales(matrix, 127)
    return RowCodes((matrix / scale.unsqueeze(1)).round_().to(torch.int8), scale)


def in_float8_rows(matrix: Tensor) -> RowCodes:
    """The same in e4m3, whose largest value is 448: three bits of mantissa, so that small values keep theirs.

    A quotient passes 448 by its own rounding at most, which the cast rounds back. So nothing is left to saturate, and
    it doesn't matter that some versions of the cast do so and others give NaN.
    """
    scale = _row_scales(matrix, torch.finfo(torch.float8_e4m3fn).max)
    return RowCodes((matrix / scale.unsqueeze(1)).to(torch.float8_e4m3fn), scale)


def _row_scales(matrix: Tensor, largest: float) -> Tensor:
    """float32 [rows]: what brings each row's largest size to `largest`. A normal number even for a row of zeros."""
    size: Tensor = torch.linalg.vector_norm(matrix, torch.inf, 1, dtype=torch.float32)
    return (size / largest).clamp_min(torch.finfo(torch.float32).tiny)


class _Fit:
    """Groups [rows, groups, size] rounded to 16 steps between middle - half and middle + half."""

    def __init__(self, groups: Tensor, middle: Tensor, half: Tensor) -> None:
        self.low = middle - half
        self.scale = (2 * half / _LEVELS).clamp_min(torch.finfo(torch.float32).tiny)
        self.codes = ((groups - self.low) / self.scale).round_().clamp_(0, _LEVELS)
        self.error = (self.codes * self.scale + self.low - groups).square_().sum(-1, keepdim=True)

    def or_better(self, other: "_Fit") -> "_Fit":
        """Of each group, the fit with the smaller error."""
        better = other.error < self.error
        for name in ("low", "scale", "codes", "error"):
            setattr(self, name, torch.where(better, getattr(other, name), getattr(self, name)))
        return self
