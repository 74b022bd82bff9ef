"""Products of single matrices on a device, by what the matrix is kept as: their error and their time, for `bench.gpu`.

error   of the device's results, relative to those of the same codes and activations on the CPU
us      microseconds a call, medians of rounds of 20 calls without a wait between them, bringing activations to codes
        included, by rows of activations. CUDA's product of integers takes 17 rows and more: fewer are padded to 32

The shapes are those of a model of 8 billion parameters (Llama 3: o_proj, gate and up together, down_proj), with weights
and activations drawn at random: small matrices, as of the packaged model, only measure how long a launch takes.
"""

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from kernels import DenseProduct, Float8Product, Product, RotatedInt8Product, Storage, in_float8_rows

ALLOWED = 0.01  # bfloat16 results, and now and then a code that is one step off
SHAPES = [(4096, 4096), (28672, 4096), (4096, 14336)]
ROWS = [1, 16, 32, 128, 512]
_COMPARED = 512  # rows of a matrix whose results are compared
_CALLS, _ROUNDS = 20, 5

_PRODUCTS: dict[Storage, Callable[[Tensor], Product]] = {
    "bfloat16": lambda weight: DenseProduct(weight.bfloat16()),
    "fp8": lambda weight: Float8Product(in_float8_rows(weight)),
    "w8a8": lambda weight: RotatedInt8Product(weight, torch.bfloat16),
}


def measured(storages: list[Storage], device: torch.device) -> dict[str, dict[str, Any]]:
    """Error and microseconds by rows of each storage, by shape of matrix."""
    return {f"{rows} x {columns}": _of_shape(rows, columns, storages, device) for rows, columns in SHAPES}


@torch.inference_mode()
def _of_shape(rows: int, columns: int, storages: list[Storage], device: torch.device) -> dict[str, Any]:
    draw = torch.Generator().manual_seed(0)
    weight = torch.randn(rows, columns, generator=draw).bfloat16()
    x = torch.randn(max(ROWS), columns, generator=draw).bfloat16()
    there, few = x.to(device), x[:4]
    found: dict[str, Any] = {}
    for storage in storages:
        product = _PRODUCTS[storage](weight.to(device))
        exact = _PRODUCTS[storage](weight[:_COMPARED])(few).float()
        error = (product(few.to(device)).cpu().float()[:, :_COMPARED] - exact).norm() / exact.norm()
        times = {str(count): _microseconds(product, there[:count]) for count in ROWS}
        found[storage] = {"error": float(error), "us": times}
    return found


def _microseconds(product: Product, x: Tensor) -> float:
    times = []
    for _ in range(_ROUNDS + 1):  # the first one chooses kernels
        began = time.perf_counter()
        for _ in range(_CALLS):
            product(x)
        if x.device.type == "cuda":
            torch.cuda.synchronize(x.device)
        times.append((time.perf_counter() - began) / _CALLS)
    return round(1e6 * statistics.median(times[1:]), 1)
