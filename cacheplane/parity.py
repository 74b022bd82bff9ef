"""Predicted against delivered reuse, per worker: whether the index can be believed."""

from dataclasses import dataclass


@dataclass(slots=True)
class Record:
    """Sums over finished requests of one worker.

    predicted, delivered   tokens
    mismatches             requests for which less was delivered than predicted; more is no fault, a sibling's
                           blocks arrive between decision and prefill
    """

    requests: int = 0
    predicted: int = 0
    delivered: int = 0
    mismatches: int = 0


class Parity:
    """One record per worker, from its first finished request on."""

    def __init__(self) -> None:
        self._records: dict[str, Record] = {}

    def note(self, worker_id: str, predicted: int, delivered: int) -> None:
        record = self._records.setdefault(worker_id, Record())
        record.requests += 1
        record.predicted += predicted
        record.delivered += delivered
        record.mismatches += delivered < predicted

    def of(self, worker_id: str) -> Record:
        """The worker's record, an empty one if nothing has finished there."""
        return self._records.get(worker_id, Record())

    def forget(self, worker_id: str) -> None:
        self._records.pop(worker_id, None)
