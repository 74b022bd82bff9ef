"""Where weights become linear layers: the one place that chooses how a matrix is packed."""

import torch

from kernels import Linear
from worker.weights import Weights


class Linears:
    """Linear layers of one model, packed for one dtype."""

    def __init__(self, weights: Weights, dtype: torch.dtype) -> None:
        self._weights = weights
        self._dtype = dtype

    def __call__(self, *names: str, bias: bool = False) -> Linear:
        """The projections of these names side by side in one layer: its output is theirs, one after another.

        names   without ".weight" and ".bias"
        bias    whether the projections have one each
        """
        weight = [self._weights.tensor(f"{name}.weight").to(self._dtype) for name in names]
        added = [self._weights.tensor(f"{name}.bias").to(self._dtype) for name in names] if bias else []
        return Linear(
            weight[0] if len(weight) == 1 else torch.cat(weight), self._dtype, torch.cat(added) if added else None
        )
