"""What the benchmark of placement works out."""

import pytest

from bench.placement import imbalance


@pytest.mark.parametrize(
    ("computed", "workers", "expected"),
    [({"w0": 10, "w1": 10}, 2, 1.0), ({"w0": 30, "w1": 10}, 2, 1.5), ({"w0": 10}, 4, 4.0), ({}, 2, 1.0)],
)
def test_imbalance_is_the_busiest_over_the_mean_of_all(computed: dict[str, int], workers: int, expected: float) -> None:
    assert imbalance(computed, workers) == expected
