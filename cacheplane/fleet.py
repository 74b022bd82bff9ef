"""The fleet: which workers there are, how they are, and what they are busy with. No IO; time is passed in."""

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import msgspec
import numpy as np
import xxhash
from numpy.typing import NDArray

from cacheplane.breaker import Circuit
from cacheplane.gauges import Floats, Gauges, Rows, queued_tokens
from cacheplane.report import LoadReport, Occupancy
from cacheplane.worker import Worker, WorkerState

SUSPECT_SECONDS: Final = 3.0  # without a report; the owner is expected to ask for one every second
GONE_SECONDS: Final = 30.0

_MAY_BE_CHOSEN: Final = (WorkerState.READY, WorkerState.PROBING)
_MAY_BE_BACK: Final = (*_MAY_BE_CHOSEN, WorkerState.SUSPECT, WorkerState.TRIPPED)


@dataclass(frozen=True, slots=True)
class Line:
    """Workers that may be given a request, in order of id; one with several ranks stands there once for each.

    ranks    which of its worker's it is
    names    under which each holds blocks
    rows     of the gauges
    places   by name, the position in this line
    seeds    uint64 of each name, from which ties are broken
    until    seconds; from then on silence may have changed somebody's state
    """

    workers: tuple[Worker, ...]
    ranks: tuple[int, ...]
    names: tuple[str, ...]
    rows: Rows
    places: dict[str, int]
    seeds: NDArray[np.uint64]
    until: float

    @classmethod
    def of(cls, workers: Iterable[Worker], until: float) -> "Line":
        members = sorted(workers, key=lambda worker: worker.id)
        names = tuple(name for worker in members for name in worker.holders)
        return cls(
            tuple(worker for worker in members for _ in range(worker.ranks)),
            tuple(rank for worker in members for rank in range(worker.ranks)),
            names,
            np.array([row for worker in members for row in worker.rows], np.intp),
            {name: place for place, name in enumerate(names)},
            np.array([xxhash.xxh3_64_intdigest(name.encode()) for name in names], np.uint64),
            until,
        )


@dataclass(slots=True)
class _Model:
    """The workers of one model name, and the fingerprint that counts for it."""

    workers: dict[str, Worker] = field(default_factory=dict)
    accepted: str = ""
    line: Line | None = None


class Fleet:
    """All workers by id, with their states kept true to what was seen of them.

    Fingerprints: workers of one model name that run different weights, templates or block sizes would make the
    same request give different answers. The first ready fingerprint of a model is the model; workers with another
    are refused (state "mismatch") until no worker of the accepted one is left.

    States are worked out again only when something happened that may change one, so that heartbeats of a large
    fleet cost little.
    """

    def __init__(self, suspect_after: float = SUSPECT_SECONDS, gone_after: float = GONE_SECONDS) -> None:
        self._suspect_after, self._gone_after = suspect_after, gone_after
        self._workers: dict[str, Worker] = {}
        self._models: defaultdict[str, _Model] = defaultdict(_Model)
        self._gauges = Gauges()

    def join(self, worker: Worker) -> None:
        """A worker to know about; joining again (another address, another model) starts it afresh."""
        self.leave(worker.id)
        worker.rows = tuple(self._gauges.take() for _ in range(worker.ranks))
        self._workers[worker.id] = worker
        self._models[worker.model].workers[worker.id] = worker
        self._changed(worker)

    def leave(self, worker_id: str) -> None:
        if (worker := self._workers.pop(worker_id, None)) is not None:
            del self._models[worker.model].workers[worker_id]
            self._models[worker.model].line = None
            for row in worker.rows:
                self._gauges.give_back(row)

    def get(self, worker_id: str) -> Worker | None:
        """The worker as last settled; `ready` and `workers` bring states up to date."""
        return self._workers.get(worker_id)

    def observe(self, worker_id: str, report: LoadReport, now: float) -> None:
        """A heartbeat. It clears suspicion, and tells of the work of others."""
        if (worker := self._workers.get(worker_id)) is None:
            return
        before = worker.report
        # READY with the same words stays READY: no state of the model has to be worked out again.
        news = worker.state is not WorkerState.READY or before is None or before.state != report.state or worker.failed
        worker.observe(report, now)
        self._mirror(worker)
        if news:  # at once: whose fingerprint was ready first must not depend on when somebody asks
            known = self._models[worker.model]
            known.line = self._settle(known, now)

    def refresh(self, worker_id: str, occupancy: Occupancy, now: float) -> None:
        """News between two heartbeats: a request has ended there, and this is what is left to do."""
        worker = self._workers.get(worker_id)
        if worker is None or worker.report is None or worker.failed:
            return
        report = msgspec.structs.replace(worker.report, **msgspec.structs.asdict(occupancy))
        self.observe(worker_id, report, now)

    def unreachable(self, worker_id: str) -> None:
        """It did not answer a heartbeat: no more requests until it shows that it is well."""
        if (worker := self._workers.get(worker_id)) is not None:
            worker.failed = True
            self._changed(worker)

    def failed(self, worker_id: str, now: float) -> None:
        """A request failed there: no more of them until its next good report, and for longer if it goes on so."""
        if (worker := self._workers.get(worker_id)) is not None:
            worker.failures += 1
            worker.breaker = worker.breaker.failed(now)
            self.unreachable(worker_id)

    def line(self, model: str, now: float) -> Line:
        """Workers that may be given a request for `model`."""
        if (known := self._models.get(model)) is None:
            return Line.of((), math.inf)
        if known.line is None or now >= known.line.until:
            known.line = self._settle(known, now)
        return known.line

    def ready(self, model: str, now: float) -> list[Worker]:
        """The same, each once."""
        line = self.line(model, now)
        return [worker for worker, rank in zip(line.workers, line.ranks, strict=True) if rank == 0]

    def workers(self, now: float) -> list[Worker]:
        """All workers with their states as of now, in order of id."""
        for model in self._models:
            self.line(model, now)
        return sorted(self._workers.values(), key=lambda worker: worker.id)

    def gauges(self, line: Line) -> Floats:
        """float64[len(Gauge), places of the line], a copy."""
        return self._gauges.table[:, line.rows]

    def queued_tokens(self, worker_id: str, now: float) -> float:
        """Prompt tokens that a worker has before it, on all of its ranks."""
        rows = list(self._workers[worker_id].rows)
        return float(queued_tokens(self._gauges.table[:, rows], now).sum())

    def charge(self, worker_id: str, decision: int, prompt_tokens: int, tokens: int, now: float, rank: int = 0) -> None:
        """Count a decision at once; a burst would otherwise all see the same idle worker.

        prompt_tokens, tokens   of the whole prompt, and of it those that have to be computed
        """
        if (worker := self._workers.get(worker_id)) is not None:
            worker.charge(decision, prompt_tokens, tokens, now, rank)
            self._after(worker)

    def prefilled(self, worker_id: str, decision: int, now: float) -> None:
        """The first token came: nothing of the prompt is left to compute."""
        if (worker := self._workers.get(worker_id)) is not None:
            worker.prefilled(decision, now)
            self._after(worker)

    def release(self, worker_id: str, decision: int) -> None:
        if (worker := self._workers.get(worker_id)) is not None:
            worker.release(decision)
            self._after(worker)

    def _after(self, worker: Worker) -> None:
        """A decision changed its gauges; its state can change by it only around a trip of its breaker."""
        if worker.breaker.trips or worker.state in (WorkerState.TRIPPED, WorkerState.PROBING):
            self._changed(worker)
        else:
            self._mirror(worker)

    def _changed(self, worker: Worker) -> None:
        self._models[worker.model].line = None
        self._mirror(worker)

    def _mirror(self, worker: Worker) -> None:
        for rank, row in enumerate(worker.rows):
            self._gauges.table[:, row] = worker.gauges(rank)

    def _settle(self, known: _Model, now: float) -> Line:
        members = known.workers.values()
        for worker in members:
            worker.state = self._health(worker, now)
        known.accepted = _fingerprint(known)
        for worker in members:
            if worker.state in _MAY_BE_CHOSEN and worker.fingerprint != known.accepted:
                worker.state = WorkerState.MISMATCH
        until = min((self._until(worker, now) for worker in members), default=math.inf)
        able = (worker for worker in members if worker.state in _MAY_BE_CHOSEN and worker.breaker.admits(now))
        return Line.of(able, until)

    def _health(self, worker: Worker, now: float) -> WorkerState:
        if worker.report is None:
            return WorkerState.SUSPECT if worker.failed else WorkerState.JOINING
        silence = now - worker.seen_at
        if silence > self._gone_after:
            return WorkerState.GONE
        if worker.failed or silence > self._suspect_after:
            return WorkerState.SUSPECT
        if worker.report.state != "ready":
            return WorkerState.DRAINING if worker.report.state == "draining" else WorkerState.JOINING
        circuit = worker.breaker.circuit(now)
        if circuit is Circuit.CLOSED:
            return WorkerState.READY
        return WorkerState.TRIPPED if circuit is Circuit.OPEN else WorkerState.PROBING

    def _until(self, worker: Worker, now: float) -> float:
        """When time alone may next change its state; heartbeats in between only put that off."""
        silence = (worker.seen_at + self._suspect_after, worker.seen_at + self._gone_after)
        # Silence counts when it is longer than a limit, so at the limit itself it is still the old state.
        limits = [math.nextafter(limit, math.inf) for limit in silence if limit >= now]
        if worker.breaker.open_until > now:
            limits.append(worker.breaker.open_until)
        return min(limits, default=math.inf)


def _fingerprint(known: _Model) -> str:
    """The one that counts for a model: it stays while any worker of it may still come back."""
    members = known.workers.values()
    if any(worker.fingerprint == known.accepted and worker.state in _MAY_BE_BACK for worker in members):
        return known.accepted
    return next((worker.fingerprint for worker in members if worker.state is WorkerState.READY), "")
