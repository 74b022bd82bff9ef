"""Predicted against delivered reuse, per worker: whether what we think of its cache can be believed."""

import enum
from collections import deque
from dataclasses import dataclass, field
from typing import Final

WINDOW: Final = 64  # requests with a prediction
ENOUGH: Final = 8  # of them before there is a verdict
WRONG_SHARE: Final = 0.25  # of the predicted tokens that were not delivered: the worker's predictions are wrong
RIGHT_SHARE: Final = 0.05  # at most this share, over as many shadow predictions: they are right again


class Verdict(enum.Enum):
    TRUSTED = "trusted"
    SUSPENDED = "suspended"  # out of prefix scoring; predictions go on as shadows, to see when they are right again


@dataclass(slots=True)
class Record:
    """Sums over finished requests of one worker.

    predicted, delivered   tokens
    mismatches             requests for which less was delivered than predicted; more is no fault, a sibling's
                           blocks arrive between decision and prefill
    suspensions            how often it was taken out of prefix scoring
    retried                a new snapshot has brought it back since its shadows were last right

    The window holds (predicted, missing) of the last requests with a prediction, since the last verdict.
    """

    requests: int = 0
    predicted: int = 0
    delivered: int = 0
    mismatches: int = 0
    suspensions: int = 0
    verdict: Verdict = Verdict.TRUSTED
    retried: bool = False
    _window: deque[tuple[int, int]] = field(default_factory=deque)
    _predicted: int = 0
    _missing: int = 0

    @property
    def missing_share(self) -> float:
        """Of the tokens predicted in the window, the share that was not delivered."""
        return self._missing / self._predicted if self._predicted else 0.0

    def note(self, predicted: int, delivered: int) -> None:
        self.requests += 1
        self.predicted += predicted
        self.delivered += delivered
        self.mismatches += delivered < predicted
        if predicted:
            self._push(predicted, max(0, predicted - delivered))
        self._judge()

    def turn(self, verdict: Verdict) -> None:
        """Another verdict; the next one rests on what is seen from now on."""
        self.suspensions += verdict is Verdict.SUSPENDED
        self.verdict = verdict
        while self._window:
            self._pop()

    def _judge(self) -> None:
        if len(self._window) < ENOUGH:
            return
        if self.verdict is Verdict.TRUSTED and self.missing_share > WRONG_SHARE:
            self.turn(Verdict.SUSPENDED)
        elif self.verdict is Verdict.SUSPENDED and self.missing_share <= RIGHT_SHARE:
            self.retried = False
            self.turn(Verdict.TRUSTED)
        elif self.verdict is Verdict.SUSPENDED:
            # Old shadows must not keep a worker out that is right again: judge it by the last few.
            self._pop()

    def _push(self, predicted: int, missing: int) -> None:
        if len(self._window) == WINDOW:
            self._pop()
        self._window.append((predicted, missing))
        self._predicted += predicted
        self._missing += missing

    def _pop(self) -> None:
        predicted, missing = self._window.popleft()
        self._predicted -= predicted
        self._missing -= missing


class Parity:
    """One record per worker, from its first finished request on. Bound: workers come and go by `forget`."""

    def __init__(self) -> None:
        self._records: dict[str, Record] = {}
        self.suspended: set[str] = set()

    def note(self, worker_id: str, predicted: int, delivered: int) -> None:
        """A request finished there."""
        record = self._records.setdefault(worker_id, Record())
        record.note(predicted, delivered)
        self._enter(worker_id, record)

    def resynced(self, worker_id: str) -> None:
        """What is known of its cache was taken anew: the worker gets another chance, once.

        If its predictions are wrong again, loss of events was not the reason, and only right shadows bring it back.
        """
        record = self._records.get(worker_id)
        if record is not None and record.verdict is Verdict.SUSPENDED and not record.retried:
            record.retried = True
            record.turn(Verdict.TRUSTED)
            self._enter(worker_id, record)

    def of(self, worker_id: str) -> Record:
        """The worker's record, an empty one if nothing has finished there."""
        return self._records.get(worker_id, Record())

    def forget(self, worker_id: str) -> None:
        self._records.pop(worker_id, None)
        self.suspended.discard(worker_id)

    def _enter(self, worker_id: str, record: Record) -> None:
        if record.verdict is Verdict.SUSPENDED:
            self.suspended.add(worker_id)
        else:
            self.suspended.discard(worker_id)
