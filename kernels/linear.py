"""A linear layer over one packed matrix."""

from torch import Tensor

from kernels.products import Product


class Linear:
    """y = x · Wᵀ + b.

    product   multiplies by W
    bias      [out] of the dtype of x, or None
    call      x [rows, in] -> [rows, out] of the same dtype
    """

    def __init__(self, product: Product, bias: Tensor | None = None) -> None:
        self._product = product
        self._bias = bias

    def __call__(self, x: Tensor) -> Tensor:
        y = self._product(x)
        return y if self._bias is None else y.add_(self._bias)
