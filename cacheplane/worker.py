"""One worker as the gateway sees it: its health, what it was sent, and what it said."""

import enum
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from cacheplane.breaker import Breaker
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
    """

    prompt_tokens: int
    tokens: int
    made_at: float


@dataclass(slots=True)
class Worker:
    """Only the fleet changes it. `row` is its place in the gauges, -1 outside a fleet."""

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
    row: int = -1
    charges: dict[int, Charge] = field(default_factory=dict)
    prefilled_at: float = 0.0
    _learned: PrefillRate = field(default_factory=PrefillRate)
    _own: int = 0
    _others: float = 0.0

    @property
    def prefill_tps(self) -> float:
        """Its own figure, or what we learned from times to first tokens; 0.0 while neither is known."""
        return (self.report.prefill_tps if self.report else 0.0) or self._learned.tps

    @property
    def sequences(self) -> int:
        """Sequences beside a new request: those that it reported or that we sent, and those sent since."""
        new = sum(1 for _ in self._unreported())
        reported = self.report.decode_sequences if self.report else 0
        return max(reported, len(self.charges) - new) + new

    def observe(self, report: LoadReport, now: float) -> None:
        """What it said. Of the tokens in its queue our own are known better: only the others' are taken from it."""
        if self.report is not None and self.report.epoch != report.epoch:
            self.charges.clear()
            self._own = 0
        self.report, self.seen_at, self.failed = report, now, False
        new = {id(charge) for charge in self._unreported()}
        ours = sum(one.prompt_tokens for one in self.charges.values() if one.tokens and id(one) not in new)
        self._others = max(0, report.queued_prefill_tokens - ours)

    def charge(self, decision: int, prompt_tokens: int, tokens: int, now: float) -> None:
        self.charges[decision] = Charge(prompt_tokens, tokens, now)
        self._own += tokens
        self.breaker = self.breaker.sent(decision, now)

    def prefilled(self, decision: int, now: float) -> None:
        """The first token came: nothing of the prompt is left to compute."""
        if (charge := self.charges.get(decision)) is not None and charge.tokens:
            self._learned.observe(charge.tokens, now - max(charge.made_at, self.prefilled_at))
            self._own -= charge.tokens
            charge.tokens = 0
            self.prefilled_at = now
        self.breaker = self.breaker.succeeded(decision, now)

    def release(self, decision: int) -> None:
        if (charge := self.charges.pop(decision, None)) is not None:
            self._own -= charge.tokens
        self.breaker = self.breaker.released(decision)

    def gauges(self) -> tuple[float, ...]:
        """Its row, in the order of `Gauge`."""
        oldest = next((charge for charge in self.charges.values() if charge.tokens), None)
        report = self.report or LoadReport(epoch=0)
        return (
            self._own,
            oldest.tokens if oldest else 0,
            max(oldest.made_at, self.prefilled_at) if oldest else 0.0,
            self._others,
            self.seen_at,
            self.prefill_tps,
            report.host_tps,
            report.disk_tps,
            report.decode_step_ms,
            self.sequences,
        )

    def _unreported(self) -> Iterator[Charge]:
        """Decisions that the last report cannot know of; they are the last ones."""
        for charge in reversed(self.charges.values()):
            if self.report is not None and charge.made_at <= self.seen_at - TRANSIT_SECONDS:
                return
            yield charge
