"""A linear layer over one packed matrix."""

import torch
from torch import Tensor

from kernels.native import CodedLinear
from kernels.products import CodesProduct, Product, SideBySide


class Linear:
    """y = x · Wᵀ + b.

    product   multiplies by W
    bias      [out] of the dtype of x, or None
    call      x [rows, in] -> [rows, out] of the same dtype
    """

    def __init__(self, product: Product, bias: Tensor | None = None) -> None:
        self._product = product
        self._bias = bias

    @property
    def coded(self) -> CodedLinear | None:
        """The same for the kernels in C, where W is kept as codes and the bias, if there is one, in float32."""
        plain = self._bias is None or self._bias.dtype == torch.float32
        panels = self._product.panels if isinstance(self._product, CodesProduct | SideBySide) else None
        return CodedLinear(panels, self._bias) if panels is not None and plain else None

    def __call__(self, x: Tensor) -> Tensor:
        y = self._product(x)
        return y if self._bias is None else y.add_(self._bias)
