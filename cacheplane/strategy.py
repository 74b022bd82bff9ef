"""By what a worker is chosen: by cost, or by a simpler rule, to measure what cost is worth."""

import itertools
from collections import defaultdict
from typing import Literal

import numpy as np

from cacheplane.cost import Costs
from cacheplane.gauges import Floats, Gauge

StrategyName = Literal["cost", "load-only", "round-robin", "longest-overlap"]


class Strategy:
    """Ranks the workers of a line: the lowest is chosen.

    cost              expected milliseconds
    load-only         the same with nothing known of any cache
    round-robin       in turn, by model
    longest-overlap   who holds most of the prompt, whatever its load; of equals who has fewest sequences
    """

    def __init__(self, name: StrategyName) -> None:
        self.name = name
        self._turns: defaultdict[str, itertools.count[int]] = defaultdict(itertools.count)

    @property
    def knows_caches(self) -> bool:
        """Whether it matters to the choice what workers hold."""
        return self.name in ("cost", "longest-overlap")

    def rank(self, model: str, costs: Costs, gauges: Floats) -> Floats:
        """float64[workers]"""
        match self.name:
            case "round-robin":
                workers = len(costs.expected)
                return ((np.arange(workers) - next(self._turns[model])) % workers).astype(np.float64)
            case "longest-overlap":
                ranks: Floats = gauges[Gauge.SEQUENCES] - 1e6 * costs.expected
                return ranks
            case _:
                return costs.total_ms
