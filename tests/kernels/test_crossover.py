import time

import pytest
import torch
from torch import Tensor

from kernels import Product, ProductByRows, settle


def costing(base: float, per_row: float, clock: list[float]) -> Product:
    """A product that moves a clock, in seconds, instead of taking time."""

    def product(x: Tensor) -> Tensor:
        clock[0] += base + per_row * len(x)
        return x

    return product


@pytest.mark.parametrize(
    ("few", "many", "most"),
    [
        ((0.0, 1.0), (10.0, 0.1), 8),  # even at 11.1 rows; 8 and 12 are tried
        ((0.0, 1.0), (0.5, 0.1), 0),
        ((0.0, 1.0), (0.0, 2.0), 32),
    ],
)
def test_a_matrix_switches_where_its_second_way_becomes_faster(
    few: tuple[float, float], many: tuple[float, float], most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    products = [ProductByRows(costing(*few, clock), costing(*many, clock)) for _ in range(3)]
    assert settle(products, 64, torch.float32) == most
    assert [product.most for product in products] == [most] * 3
