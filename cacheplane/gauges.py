"""The figures that placement weighs, in columns: a decision costs little for each worker that there is."""

import enum
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]

_FIRST_ROWS: Final = 16


class Gauge(enum.IntEnum):
    """One column; times in seconds, rates in tokens per second with 0 for unknown."""

    OWN = 0  # tokens of our decisions that are not computed
    OLDEST = 1  # tokens of the first of them: at most these can be partly done
    PROGRESS_AT = 2  # when the worker began on it, as far as we can tell
    OTHERS = 3  # tokens in its queue that are not ours, as last reported
    OTHERS_AT = 4
    PREFILL_TPS = 5
    HOST_TPS = 6
    DISK_TPS = 7
    STEP_MS = 8
    SEQUENCES = 9


class Gauges:
    """One row per worker, in arrays that grow."""

    def __init__(self) -> None:
        self.table: Floats = np.zeros((len(Gauge), _FIRST_ROWS))
        self._free: list[int] = list(reversed(range(_FIRST_ROWS)))

    def take(self) -> int:
        """A row of zeros for a new worker."""
        if not self._free:
            rows = self.table.shape[1]
            self.table = np.concatenate([self.table, np.zeros_like(self.table)], axis=1)
            self._free = list(reversed(range(rows, 2 * rows)))
        return self._free.pop()

    def give_back(self, row: int) -> None:
        self.table[:, row] = 0
        self._free.append(row)


def queued_tokens(gauges: Floats, now: float) -> Floats:
    """Prompt tokens before a new request, by worker.

    gauges   float64[len(Gauge), workers]

    Work that others sent drains from the moment of the report. Of our own only the oldest prompt can be partly done:
    when it is done we see its first token. So a worker that is stuck keeps its queue, whatever its rate was.
    """
    tps = gauges[Gauge.PREFILL_TPS]
    progress = np.minimum(gauges[Gauge.OLDEST], np.maximum(0.0, now - gauges[Gauge.PROGRESS_AT]) * tps)
    others: Floats = np.maximum(0.0, gauges[Gauge.OTHERS] - (now - gauges[Gauge.OTHERS_AT]) * tps)
    queued: Floats = gauges[Gauge.OWN] - progress + others
    return queued
