"""The fleet: which workers there are, how they are, and what they are busy with. No IO; time is passed in."""

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import msgspec

HEARTBEAT_SECONDS: Final = 1.0  # how often the owner is expected to ask for a report
SUSPECT_SECONDS: Final = 3.0  # without a report
GONE_SECONDS: Final = 30.0
# A report cannot know of what was decided just before it: the request is still on its way to the worker.
TRANSIT_SECONDS: Final = 0.1


class WorkerState(enum.Enum):
    JOINING = "joining"  # known, has not said that it is ready
    READY = "ready"
    SUSPECT = "suspect"  # silent, or a request just failed there; back at its next good report
    DRAINING = "draining"  # finishes what it has
    MISMATCH = "mismatch"  # ready, but not the same model as the others of that name
    GONE = "gone"  # silent for long


class LoadReport(msgspec.Struct, frozen=True):
    """A worker's own figures (its `GET /load`); rates of 0 mean not measured yet.

    epoch                                  incarnation, another one tells of a restart
    state                                  "starting", "ready" or "draining"
    waiting, running, decode_sequences     requests and sequences
    queued_prefill_tokens                  prompt tokens that are accepted and not computed yet
    free_blocks, total_blocks              of the device pool
    prefill_tps, host_tps, disk_tps        tokens per second: computed, loaded back from host, from disk
    decode_step_ms                         one decode step of the whole batch
    """

    epoch: int
    state: str = "ready"
    waiting: int = 0
    running: int = 0
    queued_prefill_tokens: int = 0
    decode_sequences: int = 0
    free_blocks: int = 0
    total_blocks: int = 0
    prefill_tps: float = 0.0
    decode_step_ms: float = 0.0
    host_tps: float = 0.0
    disk_tps: float = 0.0


class Occupancy(msgspec.Struct, frozen=True):
    """The part of a report that every request changes; a worker sends it with the end of each one."""

    waiting: int = 0
    running: int = 0
    queued_prefill_tokens: int = 0
    decode_sequences: int = 0
    free_blocks: int = 0


@dataclass(slots=True)
class Charge:
    """A decision of ours that the worker's figures do not show yet.

    tokens    prompt tokens to compute, 0 once the first token came
    made_at   seconds, the clock of the fleet's owner
    """

    tokens: int
    made_at: float


@dataclass(slots=True)
class Worker:
    """One worker as the gateway sees it; only the fleet changes it."""

    id: str
    url: str
    model: str
    fingerprint: str
    state: WorkerState = WorkerState.JOINING
    report: LoadReport | None = None
    seen_at: float = 0.0
    failed: bool = False
    failures: int = 0
    charges: dict[int, Charge] = field(default_factory=dict)

    def queued_tokens(self, now: float) -> float:
        """Prompt tokens before a new request: what is left of those reported, and those decided since."""
        left = 0.0
        if self.report is not None:
            left = self.report.queued_prefill_tokens - (now - self.seen_at) * self.report.prefill_tps
        return max(0.0, left) + sum(charge.tokens for charge in self.charges.values())

    @property
    def sequences(self) -> int:
        """Sequences that decode beside a new request: reported, and decided since."""
        return (self.report.decode_sequences if self.report else 0) + len(self.charges)


class Fleet:
    """All workers by id, with their states kept true to what was seen of them.

    Fingerprints: workers of one model name that run different weights, templates or block sizes would make the
    same request give different answers. The first ready fingerprint of a model is the model; workers with another
    are refused (state "mismatch") until no worker of the accepted one is left.
    """

    def __init__(self, suspect_after: float = SUSPECT_SECONDS, gone_after: float = GONE_SECONDS) -> None:
        self._suspect_after, self._gone_after = suspect_after, gone_after
        self._workers: dict[str, Worker] = {}
        self._accepted: dict[str, str] = {}

    def join(self, worker: Worker) -> None:
        """A worker to know about; joining again (another address, another model) starts it afresh."""
        self._workers[worker.id] = worker

    def leave(self, worker_id: str) -> None:
        self._workers.pop(worker_id, None)

    def get(self, worker_id: str) -> Worker | None:
        """The worker as last settled; `ready` and `workers` bring states up to date."""
        return self._workers.get(worker_id)

    def observe(self, worker_id: str, report: LoadReport, now: float) -> None:
        """A heartbeat. It clears suspicion, and takes over what it can know of our decisions."""
        if (worker := self._workers.get(worker_id)) is None:
            return
        restarted = worker.report is not None and worker.report.epoch != report.epoch
        known_by = now if restarted else now - TRANSIT_SECONDS
        worker.charges = {key: charge for key, charge in worker.charges.items() if charge.made_at > known_by}
        worker.report, worker.seen_at, worker.failed = report, now, False
        self._settle(worker.model, now)

    def refresh(self, worker_id: str, occupancy: Occupancy, now: float) -> None:
        """News between two heartbeats: a request has ended there, and this is what is left to do.

        Without it the next turn of a session would see the load that the session itself has just put there.
        """
        worker = self._workers.get(worker_id)
        if worker is None or worker.report is None or worker.failed:
            return
        report = msgspec.structs.replace(worker.report, **msgspec.structs.asdict(occupancy))
        self.observe(worker_id, report, now)

    def failed(self, worker_id: str, now: float) -> None:
        """A request failed there: no more of them until it shows that it is well."""
        if (worker := self._workers.get(worker_id)) is not None:
            worker.failed = True
            worker.failures += 1
            self._settle(worker.model, now)

    def ready(self, model: str, now: float) -> list[Worker]:
        """Workers that may be given a request for `model`, in order of id."""
        members = self._settle(model, now)
        return sorted((worker for worker in members if worker.state is WorkerState.READY), key=lambda w: w.id)

    def workers(self, now: float) -> list[Worker]:
        """All workers with their states as of now, in order of id."""
        for model in {worker.model for worker in self._workers.values()}:
            self._settle(model, now)
        return sorted(self._workers.values(), key=lambda worker: worker.id)

    def charge(self, worker_id: str, decision: int, tokens: int, now: float) -> None:
        """Count a decision at once; a burst would otherwise all see the same idle worker."""
        if (worker := self._workers.get(worker_id)) is not None:
            worker.charges[decision] = Charge(tokens, now)

    def prefilled(self, worker_id: str, decision: int) -> None:
        """The first token came: nothing of the prompt is left to compute."""
        if (worker := self._workers.get(worker_id)) is not None and decision in worker.charges:
            worker.charges[decision].tokens = 0

    def release(self, worker_id: str, decision: int) -> None:
        if (worker := self._workers.get(worker_id)) is not None:
            worker.charges.pop(decision, None)

    def _settle(self, model: str, now: float) -> list[Worker]:
        members = [worker for worker in self._workers.values() if worker.model == model]
        for worker in members:
            worker.state = self._health(worker, now)
        accepted = self._fingerprint(model, members)
        for worker in members:
            if worker.state is WorkerState.READY and worker.fingerprint != accepted:
                worker.state = WorkerState.MISMATCH
        return members

    def _health(self, worker: Worker, now: float) -> WorkerState:
        if worker.report is None:
            return WorkerState.SUSPECT if worker.failed else WorkerState.JOINING
        silence = now - worker.seen_at
        if silence > self._gone_after:
            return WorkerState.GONE
        if worker.failed or silence > self._suspect_after:
            return WorkerState.SUSPECT
        if worker.report.state == "draining":
            return WorkerState.DRAINING
        return WorkerState.READY if worker.report.state == "ready" else WorkerState.JOINING

    def _fingerprint(self, model: str, members: Iterable[Worker]) -> str | None:
        """The one that counts for a model: it stays while any worker of it may still come back."""
        accepted = self._accepted.get(model)
        lasting = (WorkerState.READY, WorkerState.SUSPECT)
        if not any(worker.fingerprint == accepted and worker.state in lasting for worker in members):
            first = next((worker.fingerprint for worker in members if worker.state is WorkerState.READY), None)
            accepted = self._accepted[model] = first or ""
        return accepted
