"""Work that workers were given lately, faded: the memory that paced traffic needs."""

import math
from typing import Final

PICKS_PER_WORKER: Final = 128  # after as many decisions per worker, about a third of a piece of work is left


class Missed:
    """Prefill milliseconds that each worker was recently sent because its cache had missed, of one model.

    It fades with decisions, not with time: with paced agents nothing is in flight at decision time however
    long one waits, and load alone sent 448 of 448 requests to one of two equal workers.
    """

    def __init__(self) -> None:
        self._age = 0.0  # in decisions per worker
        self._work: dict[str, tuple[float, float]] = {}  # worker -> (milliseconds, age at which that was)

    def add(self, worker_id: str, milliseconds: float, fleet_size: int) -> None:
        """A decision was made among `fleet_size` workers; everything older fades a little."""
        self._age += 1 / fleet_size
        self._work[worker_id] = (self.of(worker_id) + milliseconds, self._age)

    def of(self, worker_id: str) -> float:
        """Milliseconds, 0 for a worker that was never chosen."""
        milliseconds, age = self._work.get(worker_id, (0.0, 0.0))
        return milliseconds * math.exp((age - self._age) / PICKS_PER_WORKER)

    def forget(self, worker_id: str) -> None:
        self._work.pop(worker_id, None)
