"""What one forward pass computes: the next tokens of each sequence in it."""

from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Row:
    """The next `count` tokens of one sequence, at positions start .. start + count - 1 of its slot.

    wanted   after how many of them, counted from the end, logits are wanted: none in the midst of a prompt, one to go
             on from, and one more for each draft token that is to be verified
    """

    slot: int
    start: int
    count: int
    wanted: int = 1


def positions_of(rows: list[Row]) -> Tensor:
    """The position of every token, row after row: int64 [tokens]."""
    return torch.tensor([row.start + at for row in rows for at in range(row.count)])


def wanted_of(rows: list[Row]) -> Tensor:
    """Indices, among all tokens of the rows, of those whose logits are wanted: int64."""
    ends = accumulate(row.count for row in rows)
    wanted = [at for row, end in zip(rows, ends, strict=True) for at in range(end - row.wanted, end)]
    return torch.tensor(wanted, dtype=torch.int64)
