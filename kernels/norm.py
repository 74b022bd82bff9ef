"""Root-mean-square normalisation."""

import math

import torch
from torch import Tensor

from kernels.native import LANES, native


class RMSNorm:
    """x / rms(x) * weight over the last dimension.

    weight   [d], or [heads, d]
    call     x [rows, d] or [rows, heads, d] -> as much again; computed in float32 whatever the dtype
    source   Zhang and Sennrich, 2019; as in Llama, where epsilon is added to the mean of squares
    """

    def __init__(self, weight: Tensor, epsilon: float) -> None:
        # x / rms = x √d / √(|x|² + d ε), so that one norm and one hypot are all that is taken of a row.
        size = weight.shape[-1]
        self.weight, self._epsilon = weight.float().contiguous(), epsilon
        self._scaled = self.weight * math.sqrt(size)
        self._floor = torch.tensor(math.sqrt(size * epsilon), device=weight.device)

    def __call__(self, x: Tensor) -> Tensor:
        library = native()
        if library is not None and x.is_cpu and x.dtype == torch.float32 and x.shape[-1] % LANES == 0:
            return library.norm(x.contiguous(), self.weight, self._epsilon)
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float32)
        return (x / torch.hypot(norm, self._floor)).mul_(self._scaled).to(x.dtype)
