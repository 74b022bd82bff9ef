"""Matrices packed once, at load, each for one way of multiplying by it."""

from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import linear

from kernels.codes import GroupCodes, RowCodes

# oneDNN chooses the blocked layout by the number of rows that it expects. 32 rows is the best compromise between decode
# (1 to 32 rows) and prefill chunks (up to 256): each is within 10 % of its own best layout.
_EXPECTED_ROWS = 32
_STRIP = 4096  # rows of a matrix that are unpacked at a time: 9 MiB of float32 at 576 columns, which stay in the cache


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


class Int4Product:
    """Groups of 4-bit codes, multiplied by bfloat16 activations.

    codes   of a shape that the kernel takes (`Int4Product.holds`)

    Scales and zero points are rounded to bfloat16, since the kernel with float32 ones is 50 times slower.
    """

    def __init__(self, codes: GroupCodes) -> None:
        self._size = codes.size
        self._packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(codes.codes.int(), 1)  # noqa: SLF001
        zero = codes.minimum + 8 * codes.scale  # the kernel computes (code - 8) * scale + zero
        self._scale_and_zero = torch.stack((codes.scale.T, zero.T), dim=-1).to(torch.bfloat16).contiguous()

    @staticmethod
    def holds(rows: int, columns: int, size: int) -> bool:
        return rows % 16 == 0 and size in (32, 64, 128, 256) and columns % size == 0

    def __call__(self, x: Tensor) -> Tensor:
        narrow = x.to(torch.bfloat16)
        y: Tensor = torch.ops.aten._weight_int4pack_mm_for_cpu(  # noqa: SLF001
            narrow, self._packed, self._size, self._scale_and_zero
        )
        return y.to(x.dtype)


class Int8Product:
    """Rows of 8-bit codes, multiplied by bfloat16 activations.

    codes   of a shape that the kernel takes (`Int8Product.holds`); on others it reads out of bounds
    """

    def __init__(self, codes: RowCodes) -> None:
        self._codes = codes.codes
        self._scale = codes.scale.to(torch.bfloat16)

    @staticmethod
    def holds(rows: int, columns: int) -> bool:
        return rows % 16 == 0 and columns % 32 == 0

    def __call__(self, x: Tensor) -> Tensor:
        narrow = x.to(torch.bfloat16)
        y: Tensor = torch.ops.aten._weight_int8pack_mm(narrow, self._codes, self._scale)  # noqa: SLF001
        return y.to(x.dtype)


class UnpackedProduct:
    """Rows of 8-bit codes, widened to float32 strip by strip at every call: for activations of many rows."""

    def __init__(self, codes: RowCodes) -> None:
        self._strips = list(zip(torch.split(codes.codes, _STRIP), torch.split(codes.scale, _STRIP), strict=True))

    def __call__(self, x: Tensor) -> Tensor:
        wide = x.float()
        strips = [linear(wide, codes.float()).mul_(scale) for codes, scale in self._strips]
        return (strips[0] if len(strips) == 1 else torch.cat(strips, dim=1)).to(x.dtype)


class ProductByRows:
    """One matrix packed twice: `few` multiplies up to `most` rows of activations, `many` more than that."""

    def __init__(self, few: Product, many: Product, most: int = 0) -> None:
        self.few = few
        self.many = many
        self.most = most

    def __call__(self, x: Tensor) -> Tensor:
        return self.few(x) if len(x) <= self.most else self.many(x)
