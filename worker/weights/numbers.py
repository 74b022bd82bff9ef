"""Whether what a tensor holds are numbers."""

import torch
from torch import Tensor

from worker.weights.errors import ModelError


def expect_numbers(name: str, *parts: Tensor) -> None:
    """ModelError, with the tensor's name, where one of its parts has what is no number, or is endless.

    A model with one of them in a matrix answers nothing, and nobody would know why.
    """
    for part in parts:
        low, high = torch.aminmax(part)  # what is no number is both
        if not (low.isfinite() and high.isfinite()):
            raise ModelError(f"tensor {name} holds what is no number; the file is damaged")
