"""Products of 8-bit codes with 8-bit codes, for CUDA: activations are brought to codes too.

Each row of activations, a token, has a scale of its own. So its result has nothing to do with its neighbours, which is
where dynamic int8 with one scale for the whole batch goes wrong. On the CPU the same codes give the same numbers, as a
reference and slowly; the limits on shapes are CUDA's and hold everywhere.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from kernels.codes import RowCodes, in_float8_rows, in_rows
from kernels.hadamard import Hadamard

_FLOAT8_STEP = 16  # torch/aten, ScaledBlas.cpp: both sides of the matrix
_INT8_STEP = 8  # torch/aten, Blas.cpp, _int_mm_out_cuda: both sides of the matrix
_INT8_LEAST_ROWS = 32  # it takes 17 and more; 32 fill a tile
_INT8_MOST_COLUMNS = (2**31 - 1) // 127**2  # of which a sum of products fits 32 bits


class Float8Product:
    """e4m3 weights and activations, each with a scale a row, summed in float32.

    codes   of e4m3, of a shape that the kernel takes (`Float8Product.holds`)
    x       bfloat16; on the CPU float32 too

    The CPU has a kernel of that name as well, but until pytorch#179118 processors with AMX took one scale for all rows.
    """

    def __init__(self, codes: RowCodes) -> None:
        self._codes = codes.codes.T  # the kernel asks for columns, which rows of the matrix are
        self._scale = codes.scale.unsqueeze(0)

    @staticmethod
    def holds(rows: int, columns: int) -> bool:
        return rows % _FLOAT8_STEP == 0 and columns % _FLOAT8_STEP == 0

    def __call__(self, x: Tensor) -> Tensor:
        coded = in_float8_rows(x)
        codes, scale = coded.codes, coded.scale.unsqueeze(1)
        if x.device.type == "cpu":
            return (codes.float() @ self._codes.float()).mul_(scale).mul_(self._scale).to(x.dtype)
        return torch._scaled_mm(codes, self._codes, scale, self._scale, out_dtype=x.dtype)  # noqa: SLF001


class RotatedInt8Product:
    """int8 weights and activations, each with a scale a row, both rotated before; sums of integers, which are exact.

    weight   of a shape that the kernel takes (`RotatedInt8Product.holds`)
    dtype    of activations: bfloat16 or float32

    Without the rotation a token's few outliers set its scale, and eight times more is lost (docs/benchmarks.md).
    """

    def __init__(self, weight: Tensor, dtype: torch.dtype) -> None:
        columns, device = weight.shape[1], weight.device
        codes = in_rows(Hadamard(columns, torch.float32, device)(weight.float()))
        self._rotate = Hadamard(columns, dtype, device)
        self._codes = codes.codes.T
        self._scale = codes.scale / self._rotate.size

    @staticmethod
    def holds(rows: int, columns: int) -> bool:
        return rows % _INT8_STEP == 0 and columns % _INT8_STEP == 0 and columns <= _INT8_MOST_COLUMNS

    def __call__(self, x: Tensor) -> Tensor:
        coded, short = in_rows(self._rotate(x)), _INT8_LEAST_ROWS - len(x)
        codes = pad(coded.codes, (0, 0, 0, short)) if short > 0 else coded.codes
        sums = torch._int_mm(codes, self._codes)[: len(x)]  # noqa: SLF001
        return (sums * coded.scale.unsqueeze(1)).mul_(self._scale).to(x.dtype)
