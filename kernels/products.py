"""Matrices packed once, at load, each for one way of multiplying by it."""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import linear

from kernels.native import Native, Panels

# oneDNN chooses the blocked layout by the number of rows that it expects. 32 rows is the best compromise between decode
# (1 to 32 rows) and prefill chunks (up to 256): each is within 10 % of its own best layout.
_EXPECTED_ROWS = 32


class Product(Protocol):
    """x [rows, in] -> x · Wᵀ [rows, out], in the dtype of x."""

    def __call__(self, x: Tensor) -> Tensor: ...


class FloatProduct:
    """float32 or bfloat16 weights in oneDNN's layout; the activations must have the same dtype."""

    def __init__(self, weight: Tensor) -> None:
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), _EXPECTED_ROWS)  # noqa: SLF001

    def __call__(self, x: Tensor) -> Tensor:
        y: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._packed, None, "none", [], "")  # noqa: SLF001
        return y


class DenseProduct:
    """The matrix as it is, on whatever device it lies: float32 or bfloat16, of which the activations must be too."""

    def __init__(self, weight: Tensor) -> None:
        self._weight = weight.contiguous()

    def __call__(self, x: Tensor) -> Tensor:
        return linear(x, self._weight)


class HalfProduct:
    """float16 weights, widened as they are multiplied: float32 activations and sums, by FBGEMM.

    weight   of values that float16 can hold (`HalfProduct.holds`)
    """

    def __init__(self, weight: Tensor) -> None:
        self._packed = torch.ops.quantized.linear_prepack_fp16(weight.float().contiguous(), None)

    @staticmethod
    def holds(weight: Tensor) -> bool:
        return bool(weight.abs().max() <= torch.finfo(torch.float16).max)

    def __call__(self, x: Tensor) -> Tensor:
        y: Tensor = torch.ops.quantized.linear_dynamic_fp16(x.float(), self._packed)
        return y.to(x.dtype)


class CodesProduct:
    """A matrix of small codes, multiplied as it is.

    native           the kernels in C
    codes            [out, in]: of 4 bits as uint8, of 8 as int8
    scale, minimum   see Panels
    wide             bits to which activations are rounded: 16, as good as not at all, or with codes of 4 bits 8

    A row's result is the same bits alone and among others.
    """

    def __init__(
        self, native: Native, codes: Tensor, scale: Tensor, minimum: Tensor | None = None, wide: int = 16
    ) -> None:
        self._native = native
        self._panels = Panels(codes, scale, minimum, wide)

    @property
    def panels(self) -> tuple[Panels, ...]:
        """The matrix, for the kernels in C."""
        return (self._panels,)

    def __call__(self, x: Tensor) -> Tensor:
        return self._native.multiply(x.float().contiguous(), self._panels).to(x.dtype)


class SideBySide:
    """Several products of the same activations: their outputs one after another."""

    def __init__(self, products: Sequence[Product]) -> None:
        self._products = list(products)

    @property
    def panels(self) -> tuple[Panels, ...] | None:
        """The matrices, for the kernels in C; None when one of them is not kept as codes."""
        coded = [product.panels for product in self._products if isinstance(product, CodesProduct)]
        return tuple(part for panels in coded for part in panels) if len(coded) == len(self._products) else None

    def __call__(self, x: Tensor) -> Tensor:
        return torch.cat([product(x) for product in self._products], dim=1)
