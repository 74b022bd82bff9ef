"""Where one way of multiplying stops being faster than another, measured on the processor that will do it."""

import time
from collections.abc import Sequence

import torch
from torch import Tensor

from kernels.products import Product, ProductByRows

_TRIED = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
_REPEATS = 2


@torch.inference_mode()
def settle(products: Sequence[ProductByRows], columns: int, dtype: torch.dtype) -> int:
    """Has matrices of one shape switch at the most rows, up to 32, for which their first way is faster; returns it.

    columns   of the activations

    All matrices are gone through in turn, so that weights come from memory, as they do in a forward pass: from the
    cache, the way with the smaller weights would look less good than it is. Takes some tens of milliseconds.
    """
    most = 0
    for rows in _TRIED:
        x = torch.zeros(rows, columns, dtype=dtype)
        if _seconds([product.few for product in products], x) >= _seconds([product.many for product in products], x):
            break
        most = rows
    for product in products:
        product.most = most
    return most


def _seconds(products: Sequence[Product], x: Tensor) -> float:
    """The shortest of a few rounds: whatever else the machine does only adds."""
    rounds = []
    for _ in range(_REPEATS):
        began = time.perf_counter()
        for product in products:
            product(x)
        rounds.append(time.perf_counter() - began)
    return min(rounds)
