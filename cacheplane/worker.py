"""One worker as the gateway sees it: its health, what it was sent, and what it said."""

import enum
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from cacheplane.breaker import Breaker
from cacheplane.ranks import holders
from cacheplane.rates import PrefillRate
from cacheplane.report import LoadReport

# A report cannot know of what was decided just before it: the request is still on its way to the worker.
TRANSIT_SECONDS: Final = 0.1


class WorkerState(enum.Enum):
    JOINING = "joining"  # known, has not said that it is ready
    READY = "ready"
    SUSPECT = "suspect"  # silent, or a request just failed there; back at its next good report
    TRIPPED = "tripped"  # requests keep failing there though it reports; its breaker is open for a while
    PROBING = "probing"  # its breaker is half-open: one request may go there, to see
    DRAINING = "draining"  # finishes what it has
    MISMATCH = "mismatch"  # ready, but not the same model as the others of that name
    GONE = "gone"  # silent for long


@dataclass(slots=True)
class Charge:
    """A decision of ours that is in flight.

    prompt_tokens   of the whole prompt
    tokens          of it that have to be computed, 0 once the first token came
    made_at         seconds, the clock of the fleet's owner
    rank            of the worker to which it was sent
    """

    prompt_tokens: int
    tokens: int
    made_at: float
    rank: int = 0


@dataclass(slots=True)
class _Lane:
    """What one rank has before it.

    own            tokens of our decisions that are not computed
    prefilled_at   seconds; when a prompt of ours was last computed
    """

    own: int = 0
    prefilled_at: float = 0.0


@dataclass(slots=True)
class Worker:
    """Only the fleet changes it.

    ranks   data-parallel engines behind its address, each with a cache and a queue of its own. Its health is of all
            of them together, and so is its load: of what others sent, each is taken to have an even share
    rows    their places in the gauges, none outside a fleet
    """

    id: str
    url: str
    model: str
    fingerprint: str
    state: WorkerState = WorkerState.JOINING
    report: LoadReport | None = None
    seen_at: float = 0.0
    failed: bool = False
    failures: int = 0
    breaker: Breaker = field(default_factory=Breaker)
    ranks: int = 1
    rows: tuple[int, ...] = ()
    charges: dict[int, Charge] = field(default_factory=dict)
    _learned: PrefillRate = field(default_factory=PrefillRate)
    _lanes: list[_Lane] = field(init=False)
    _others: float = 0.0

    def __post_init__(self) -> None:
        if self.ranks < 1:
            raise ValueError("a worker has at least one rank")
        self._lanes = [_Lane() for _ in range(self.ranks)]

    @property
    def holders(self) -> list[str]:
        """The names of its ranks among the holders of blocks."""
        return holders(self.id, self.ranks)

    @property
    def prefill_tps(self) -> float:
        """Its own figure, or what we learned from times to first tokens; 0.0 while neither is known."""
        return (self.report.prefill_tps if self.report else 0.0) or self._learned.tps

    def observe(self, report: LoadReport, now: float) -> None:
        """What it said. Of the tokens in its queue our own are known better: only the others' are taken from it."""
        if self.report is not None and self.report.epoch != report.epoch:
            self.charges.clear()
            for lane in self._lanes:
                lane.own = 0
        self.report, self.seen_at, self.failed = report, now, False
        new = {id(charge) for charge in self._unreported()}
        ours = sum(one.prompt_tokens for one in self.charges.values() if one.tokens and id(one) not in new)
        self._others = max(0, report.queued_prefill_tokens - ours)

    def charge(self, decision: int, prompt_tokens: int, tokens: int, now: float, rank: int = 0) -> None:
        self.charges[decision] = Charge(prompt_tokens, tokens, now, rank)
        self._lanes[rank].own += tokens
        self.breaker = self.breaker.sent(decision, now)

    def prefilled(self, decision: int, now: float) -> None:
        """The first token came: nothing of the prompt is left to compute."""
        if (charge := self.charges.get(decision)) is not None and charge.tokens:
            lane = self._lanes[charge.rank]
            self._learned.observe(charge.tokens, now - max(charge.made_at, lane.prefilled_at))
            lane.own -= charge.tokens
            charge.tokens = 0
            lane.prefilled_at = now
        self.breaker = self.breaker.succeeded(decision, now)

    def release(self, decision: int) -> None:
        if (charge := self.charges.pop(decision, None)) is not None:
            self._lanes[charge.rank].own -= charge.tokens
        self.breaker = self.breaker.released(decision)

    def gauges(self, rank: int = 0) -> tuple[float, ...]:
        """The row of one rank, in the order of `Gauge`."""
        lane, sent = self._lanes[rank], self._sent(rank)
        oldest = next((charge for charge in sent if charge.tokens), None)
        report = self.report or LoadReport(epoch=0)
        return (
            lane.own,
            oldest.tokens if oldest else 0,
            max(oldest.made_at, lane.prefilled_at) if oldest else 0.0,
            self._others / self.ranks,
            self.seen_at,
            self.prefill_tps,
            report.host_tps,
            report.disk_tps,
            report.decode_step_ms,
            self.sequences(rank),
        )

    def sequences(self, rank: int = 0) -> float:
        """Sequences beside a new request: those that it reported or that we sent, and those sent since."""
        new = sum(charge.rank == rank for charge in self._unreported())
        reported = self.report.decode_sequences / self.ranks if self.report else 0
        return max(reported, len(self._sent(rank)) - new) + new

    def _sent(self, rank: int) -> list[Charge]:
        """What is in flight there, oldest first."""
        return [charge for charge in self.charges.values() if charge.rank == rank]

    def _unreported(self) -> Iterator[Charge]:
        """Decisions that the last report cannot know of; they are the last ones."""
        for charge in reversed(self.charges.values()):
            if self.report is not None and charge.made_at <= self.seen_at - TRANSIT_SECONDS:
                return
            yield charge
