"""The rules that rank workers."""

from typing import get_args

import numpy as np
import pytest

from cacheplane.cost import Costs
from cacheplane.gauges import Gauge
from cacheplane.strategy import Strategy, StrategyName

COSTS = Costs(np.array([[5.0, 1.0, 3.0]]), np.array([0.0, 16.0, 16.0]))
GAUGES = np.zeros((len(Gauge), 3))
GAUGES[Gauge.SEQUENCES] = [0, 4, 2]


@pytest.mark.parametrize(("name", "first"), [("cost", 1), ("load-only", 1), ("round-robin", 0), ("longest-overlap", 2)])
def test_the_lowest_rank_is_chosen(name: StrategyName, first: int) -> None:
    assert int(Strategy(name).rank("m", COSTS, GAUGES).argmin()) == first


def test_turns_are_taken_by_model() -> None:
    strategy = Strategy("round-robin")
    assert [int(strategy.rank(model, COSTS, GAUGES).argmin()) for model in "mmnmm"] == [0, 1, 0, 2, 0]


def test_two_of_them_look_at_caches() -> None:
    assert [name for name in get_args(StrategyName) if Strategy(name).knows_caches] == ["cost", "longest-overlap"]
