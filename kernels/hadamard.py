"""A rotation of activations and weights that spares the codes of a row its outliers."""

import torch
from torch import Tensor

_MOST = 64  # values of a block: 512 measured no better


class Hadamard:
    """Blocks of adjacent values multiplied by a Hadamard matrix: one large value becomes many of middling size.

    columns   of the matrices that are rotated; blocks are of the largest power of two that divides it, up to 64
    size      of a block. The matrix has entries 1 and -1 and is not normed: H · Hᵀ = size · I, so that
              rotated x · (rotated W)ᵀ = size · x · Wᵀ
    dtype     of what is rotated; sums are of float32 in between, or better
    source    Sylvester's construction; before quantization: QuaRot (arXiv 2404.00456)
    """

    def __init__(self, columns: int, dtype: torch.dtype, device: torch.device) -> None:
        self.size = min(columns & -columns, _MOST)
        self._matrix = _sylvester(self.size).to(device, dtype)

    def __call__(self, x: Tensor) -> Tensor:
        """x [rows, columns] -> the same shape and dtype."""
        return (x.reshape(-1, self.size) @ self._matrix).view(x.shape)


def _sylvester(size: int) -> Tensor:
    matrix = torch.ones(1, 1)
    while len(matrix) < size:
        matrix = torch.cat((torch.cat((matrix, matrix), 1), torch.cat((matrix, -matrix), 1)))
    return matrix
