"""Placement: the worker on which a request is expected to cost the least, in milliseconds."""

import itertools
from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final, Literal

import xxhash

from cacheplane.fleet import Fleet, LoadReport, Worker
from cacheplane.identity import BlockChain
from cacheplane.index import Overlap, PrefixIndex
from cacheplane.missed import Missed
from cacheplane.parity import Parity
from cacheplane.siblings import Siblings

# Tokens per second, until a worker has measured its own; low for a GPU, so that a cache hit is never underrated.
PRIOR_PREFILL_TPS: Final = 1_000.0
PRIOR_HOST_TPS: Final = 100_000.0
PRIOR_DISK_TPS: Final = 20_000.0

# How much of the recently missed work weighs against a hit. Less lets a popular prefix draw all new work to one
# worker, more makes sessions leave their blocks to even out small differences.
RECENT_WEIGHT: Final = 0.05

Mode = Literal["events", "approximate", "load-only"]
Reason = Literal["only-worker", "prefix", "sibling", "holder-busy", "load", "tie"]


class NoWorkerError(Exception):
    """No worker may be given a request for this model now."""

    def __init__(self, model: str) -> None:
        super().__init__(f"no worker is ready for model {model!r}")
        self.model = model


@dataclass(frozen=True, slots=True)
class Cost:
    """What a request is expected to cost on one worker, all in milliseconds.

    queue_ms     computing the prompt tokens that are before it, our own fresh decisions included
    prefill_ms   computing its own tokens that are not cached
    load_ms      bringing its blocks back from host and disk
    decode_ms    one decode step for each sequence beside it: what a busy batch takes from everyone
    recent_ms    a share of the work that the worker was lately sent, see `Missed`
    """

    queue_ms: float
    prefill_ms: float
    load_ms: float
    decode_ms: float
    recent_ms: float

    @property
    def total_ms(self) -> float:
        return self.queue_ms + self.prefill_ms + self.load_ms + self.decode_ms + self.recent_ms


@dataclass(frozen=True, slots=True)
class Decision:
    """Where a request goes, and why.

    mode               "events": the worker's index is whole; "approximate": hints only (a broken stream, or our
                       own fresh decisions); "load-only": nothing is known of its cache
    predicted_tokens   confirmed blocks on the worker, never more than it can reuse of this prompt
    available_tokens   the same on the worker of the fleet that has most
    runner_up          (worker id, cost) of the second best, None when there was no choice
    reason             "only-worker", "prefix" (holds more than the runner-up), "sibling" (of a decision just
                       made), "holder-busy" (another holds more and costs more), "load", "tie"
    """

    id: int
    worker: Worker
    mode: Mode
    predicted_tokens: int
    available_tokens: int
    cost: Cost
    runner_up: tuple[str, Cost] | None
    reason: Reason


@dataclass(frozen=True, slots=True)
class _Request:
    """A prompt as placement sees it; `reusable` is the most that any worker serves from cache.

    Even a full hit computes one token, so the worker reuses at most the blocks before the last token.
    """

    chain: BlockChain
    prompt_tokens: int

    @property
    def reusable(self) -> int:
        return max(0, self.prompt_tokens - 1) // self.chain.block_size * self.chain.block_size

    def tokens(self, blocks: int) -> int:
        return min(blocks * self.chain.block_size, self.reusable)


@dataclass(frozen=True, slots=True)
class _Option:
    """One worker and what choosing it would mean."""

    worker: Worker
    confirmed: int
    expected: int
    cost: Cost
    tie: int

    @property
    def rank(self) -> tuple[float, int]:
        # To the microsecond: replicas sum the same terms in another order and must still see the same tie.
        return round(self.cost.total_ms, 3), self.tie


class Placement:
    """Chooses workers; keeps what it needs of its own decisions. Pure but for the injected clock (seconds).

    prefix_aware   False leaves what workers hold out of the cost, to measure what it is worth; predictions go on

    Ties break by a hash of prompt and worker, so that replicas agree and equal workers share unrelated prompts.
    """

    def __init__(
        self, fleet: Fleet, index: PrefixIndex, clock: Callable[[], float], *, prefix_aware: bool = True
    ) -> None:
        self.parity = Parity()
        self._prefix_aware = prefix_aware
        self._fleet, self._index, self._clock = fleet, index, clock
        self._siblings = Siblings()
        self._missed: defaultdict[str, Missed] = defaultdict(Missed)
        self._ids = itertools.count(1)

    def decide(self, model: str, chain: BlockChain, prompt_tokens: int, exclude: Collection[str] = ()) -> Decision:
        """Choose a worker and charge it; every decision must be `finished`.

        exclude   workers not to choose, for a retry elsewhere
        errors    NoWorkerError when nobody is left
        """
        now = self._clock()
        ready = self._fleet.ready(model, now)
        request = _Request(chain, prompt_tokens)
        overlaps = self._index.match(chain.keys)
        sent = self._siblings.match(chain.hashes, now)
        options = sorted(
            (
                self._option(worker, request, overlaps.get(worker.id, Overlap()), sent.get(worker.id, 0), now)
                for worker in ready
                if worker.id not in exclude
            ),
            key=lambda option: option.rank,
        )
        if not options:
            raise NoWorkerError(model)
        held = max(request.tokens(overlaps[worker.id].blocks) if worker.id in overlaps else 0 for worker in ready)
        decision = self._decision(options, held)
        self._take(decision, request, options[0], len(options), now)
        return decision

    def first_token(self, decision: Decision) -> None:
        """The prompt is computed; it weighs on the worker's queue no more."""
        self._fleet.prefilled(decision.worker.id, decision.id)

    def finished(self, decision: Decision, delivered_tokens: int | None) -> None:
        """The request ended. `delivered_tokens` is the worker's own count of reuse, None if it never told."""
        self._fleet.release(decision.worker.id, decision.id)
        if delivered_tokens is None:
            self._siblings.forget(decision.id)
        else:
            self.parity.note(decision.worker.id, decision.predicted_tokens, delivered_tokens)

    def forget(self, worker_id: str) -> None:
        """The worker left for good."""
        self.parity.forget(worker_id)
        for missed in self._missed.values():
            missed.forget(worker_id)

    def _option(self, worker: Worker, request: _Request, overlap: Overlap, sent: int, now: float) -> _Option:
        expected = request.tokens(max(overlap.blocks, sent)) if self._prefix_aware else 0
        load = worker.report or LoadReport(epoch=0)
        prefill_ms_per_token = 1000 / (load.prefill_tps or PRIOR_PREFILL_TPS)
        block = request.chain.block_size
        cost = Cost(
            queue_ms=worker.queued_tokens(now) * prefill_ms_per_token,
            prefill_ms=(request.prompt_tokens - expected) * prefill_ms_per_token,
            load_ms=1000 * overlap.host * block / (load.host_tps or PRIOR_HOST_TPS)
            + 1000 * overlap.disk * block / (load.disk_tps or PRIOR_DISK_TPS),
            decode_ms=worker.sequences * load.decode_step_ms,
            recent_ms=RECENT_WEIGHT * self._missed[worker.model].of(worker.id),
        )
        last = request.chain.hashes[-1] if request.chain.hashes else b""
        tie = xxhash.xxh3_64_intdigest(last + worker.id.encode())
        return _Option(worker, request.tokens(overlap.blocks), expected, cost, tie)

    def _decision(self, options: list[_Option], available: int) -> Decision:
        best = options[0]
        second = options[1] if len(options) > 1 else None
        return Decision(
            id=next(self._ids),
            worker=best.worker,
            mode=self._mode(best),
            predicted_tokens=best.confirmed,
            available_tokens=available,
            cost=best.cost,
            runner_up=(second.worker.id, second.cost) if second else None,
            reason=_reason(best, second, available if self._prefix_aware else 0),
        )

    def _mode(self, option: _Option) -> Mode:
        if not self._prefix_aware:
            return "load-only"
        if self._index.synced(option.worker.id):
            return "events"
        return "approximate" if option.expected else "load-only"

    def _take(self, decision: Decision, request: _Request, option: _Option, fleet_size: int, now: float) -> None:
        """Remember the decision wherever the next one must already see it."""
        worker = decision.worker
        self._fleet.charge(worker.id, decision.id, request.prompt_tokens - option.expected, now)
        self._siblings.remember(decision.id, worker.id, request.chain.hashes, now)
        self._missed[worker.model].add(worker.id, decision.cost.prefill_ms, fleet_size)


def _reason(best: _Option, second: _Option | None, available: int) -> Reason:
    if second is None:
        return "only-worker"
    if best.rank[0] == second.rank[0]:
        return "tie"
    if best.expected > second.expected:
        return "sibling" if best.expected > best.confirmed else "prefix"
    return "holder-busy" if available > best.expected else "load"
