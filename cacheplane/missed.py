"""Work that workers were given lately, faded: the memory that paced traffic needs."""

import math
from typing import Final

import numpy as np

from cacheplane.fleet import Line
from cacheplane.gauges import Floats, Rows

PICKS_PER_WORKER: Final = 128  # after as many decisions per worker, about a third of a piece of work is left

_RESCALE: Final = 60.0  # in lives; exp of it is far from overflow


class Missed:
    """Prefill milliseconds that each worker was recently sent because its cache had missed, of one model.

    It fades with decisions, not with time: with paced agents nothing is in flight at decision time however
    long one waits, and load alone sent 448 of 448 requests to one of two equal workers. A worker that is new starts
    from the mean of the others: from nothing it would be sent everything until it has caught up.

    Kept as if nothing ever faded, later work being worth more instead, so that a decision touches one number.
    """

    def __init__(self) -> None:
        self._age = 0.0  # in lives of a piece of work
        self._work: Floats = np.zeros(16)
        self._rows: dict[str, int] = {}
        self._line: Line | None = None
        self._along: Rows = np.empty(0, np.intp)

    def add(self, worker_id: str, milliseconds: float, fleet_size: int) -> None:
        """A decision was made among `fleet_size` workers; everything older fades a little."""
        self._age += 1 / (fleet_size * PICKS_PER_WORKER)
        if self._age > _RESCALE:
            self._work *= math.exp(-self._age)
            self._age = 0.0
        row = self._row(worker_id)
        self._work[row] += milliseconds * math.exp(self._age)

    def of(self, worker_id: str) -> float:
        """Milliseconds."""
        row = self._row(worker_id)
        return float(self._work[row] * math.exp(-self._age))

    def along(self, line: Line) -> Floats:
        """Milliseconds of each worker of a line."""
        if line is not self._line:
            self._along = np.array([self._row(name) for name in line.names], np.intp)
            self._line = line
        return self._work[self._along] * math.exp(-self._age)

    def forget(self, worker_id: str) -> None:
        """Its row stays empty until another worker takes it."""
        self._line = None
        if (row := self._rows.pop(worker_id, None)) is not None:
            self._work[row] = 0.0

    def _row(self, worker_id: str) -> int:
        if (row := self._rows.get(worker_id)) is None:
            taken = set(self._rows.values())
            row = next(free for free in range(len(taken) + 1) if free not in taken)
            if row >= len(self._work):
                self._work = np.concatenate([self._work, np.zeros_like(self._work)])
            self._work[row] = self._work.sum() / len(taken) if taken else 0.0
            self._rows[worker_id] = row
        return row
