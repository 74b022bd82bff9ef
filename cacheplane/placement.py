"""Placement: the worker on which a request is expected to cost the least, in milliseconds."""

import itertools
from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Literal

import numpy as np
import xxhash
from numpy.typing import NDArray

from cacheplane.cost import Cost, Costs, price
from cacheplane.fleet import Fleet, Line
from cacheplane.gauges import Floats
from cacheplane.guesses import Guesses
from cacheplane.identity import BlockChain
from cacheplane.index import PrefixIndex
from cacheplane.missed import Missed
from cacheplane.parity import Parity
from cacheplane.ranks import holders
from cacheplane.reach import Prompt, Reach, reach
from cacheplane.siblings import Siblings
from cacheplane.strategy import Strategy, StrategyName
from cacheplane.tally import Mode, Tally
from cacheplane.worker import Worker

Reason = Literal["only-worker", "prefix", "sibling", "holder-busy", "load", "tie", "turn"]

_MIX = np.uint64(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio, odd: a multiplicative hash


class NoWorkerError(Exception):
    """No worker may be given a request for this model now."""

    def __init__(self, model: str) -> None:
        super().__init__(f"no worker is ready for model {model!r}")
        self.model = model


@dataclass(frozen=True, slots=True)
class Decision:
    """Where a request goes, and why.

    mode               "events": the worker's index is whole; "approximate": hints only (a broken stream, our own
                       past decisions); "load-only": nothing is known of its cache, or it may not be believed
    predicted_tokens   blocks thought to be on the worker, never more than it can reuse of this prompt
    available_tokens   the same on the worker of the fleet that has most
    rank               of the worker, which holds and queues for itself; None where it has one. Whoever sends the
                       request names it there: vLLM and SGLang read the header `X-data-parallel-rank`
    runner_up          (name, cost) of the second best, None when there was no choice
    reason             "only-worker", "prefix" (holds more than the runner-up), "sibling" (of a decision just
                       made), "holder-busy" (another holds more and costs more), "load", "tie", "turn" (round robin)
    """

    id: int
    worker: Worker
    rank: int | None
    chain: BlockChain
    mode: Mode
    predicted_tokens: int
    available_tokens: int
    cost: Cost
    runner_up: tuple[str, Cost] | None
    reason: Reason

    @property
    def holder(self) -> str:
        """Its name among the holders of blocks."""
        return self.worker.holders[self.rank or 0]


@dataclass(frozen=True, slots=True)
class _Field:
    """The workers of one decision, by place in the line: what they hold, what they cost, how they rank."""

    line: Line
    reach: Reach
    costs: Costs
    order: list[int]  # the best and the runner-up, if any
    ranks: Floats


class Placement:
    """Chooses workers; keeps what it needs of its own decisions. Pure but for the injected clock (seconds).

    strategy   by what a worker is chosen; predictions and costs are worked out all the same
    parity     may take a worker out of prefix scoring
    tally      decisions by mode

    Ties break by a hash of prompt and worker, so that replicas agree and equal workers share unrelated prompts.
    """

    def __init__(
        self, fleet: Fleet, index: PrefixIndex, clock: Callable[[], float], strategy: StrategyName = "cost"
    ) -> None:
        self.parity = Parity()
        self.tally = Tally()
        self._strategy = Strategy(strategy)
        self._fleet, self._index, self._clock = fleet, index, clock
        self._siblings, self._guesses = Siblings(), Guesses()
        self._missed: defaultdict[str, Missed] = defaultdict(Missed)
        self._ids = itertools.count(1)

    def decide(self, model: str, chain: BlockChain, prompt_tokens: int, exclude: Collection[str] = ()) -> Decision:
        """Choose a worker and charge it; every decision must be `finished`.

        exclude   workers not to choose, for a retry elsewhere
        errors    NoWorkerError when nobody is left
        """
        now = self._clock()
        prompt = Prompt(chain, prompt_tokens)
        field = self._field(model, prompt, exclude, now)
        decision = self._decision(field, prompt)
        worker = decision.worker
        expected = int(field.costs.expected[field.order[0]])
        self._fleet.charge(worker.id, decision.id, prompt_tokens, prompt_tokens - expected, now, decision.rank or 0)
        self._siblings.remember(decision.id, decision.holder, chain.hashes, now)
        self._missed[model].add(decision.holder, decision.cost.prefill_ms, len(field.line.names))
        self.tally.note(worker.id, decision.mode)
        return decision

    def first_token(self, decision: Decision) -> None:
        """The prompt is computed; it weighs on the worker's queue no more."""
        now, worker = self._clock(), decision.worker
        self._fleet.prefilled(worker.id, decision.id, now)
        if not self._is_there(worker):
            return
        if self._index.synced(decision.holder):
            self._guesses.drop(decision.holder)
        else:
            capacity = worker.report.total_blocks // worker.ranks if worker.report else 0
            self._guesses.computed(decision.holder, decision.chain, capacity, now)

    def finished(self, decision: Decision, delivered_tokens: int | None) -> None:
        """The request ended. `delivered_tokens` is the worker's own count of reuse, None if it never told."""
        self._fleet.release(decision.worker.id, decision.id)
        if delivered_tokens is None:
            self._siblings.forget(decision.id)
        elif self._is_there(decision.worker):
            self.parity.note(decision.worker.id, decision.predicted_tokens, delivered_tokens)

    def _is_there(self, worker: Worker) -> bool:
        """Its process has not left since: what the last one did tells nothing of the next one under its name."""
        return self._fleet.get(worker.id) is worker

    def forget(self, worker_id: str, ranks: int = 1) -> None:
        """The worker left for good, with all of its ranks."""
        self.parity.forget(worker_id)
        self.tally.forget(worker_id)
        for name in holders(worker_id, ranks):
            self._guesses.drop(name)
            self._siblings.drop(name)
            for missed in self._missed.values():
                missed.forget(name)

    def _field(self, model: str, prompt: Prompt, exclude: Collection[str], now: float) -> _Field:
        line = self._fleet.line(model, now)
        able = np.array([worker.id not in exclude for worker in line.workers], bool) if exclude else None
        if not line.workers or (able is not None and not able.any()):
            raise NoWorkerError(model)
        gauges = self._fleet.gauges(line)
        known = reach(prompt, line, self._index, self._guesses, self._siblings, now)
        costs = price(prompt, self._believed(known, line), gauges, self._missed[model].along(line), able, now)
        ranks = self._strategy.rank(model, costs, gauges)
        if able is not None:
            ranks = np.where(able, ranks, np.inf)
        return _Field(line, known, costs, _first_two(ranks, line.seeds, prompt.chain), ranks)

    def _believed(self, known: Reach, line: Line) -> Reach:
        """What may weigh in the choice: nothing of caches for some strategies, nothing of suspended workers."""
        if not self._strategy.knows_caches:
            return known.nothing()
        suspended = [at for at, worker in enumerate(line.workers) if worker.id in self.parity.suspended]
        return known.without(suspended) if suspended else known

    def _decision(self, field: _Field, prompt: Prompt) -> Decision:
        best, *others = field.order
        line, predicted = field.line, field.reach.predicted
        worker = line.workers[best]
        return Decision(
            id=next(self._ids),
            worker=worker,
            rank=line.ranks[best] if worker.ranks > 1 else None,
            chain=prompt.chain,
            mode=self._mode(worker.id, line.names[best], bool(field.costs.expected[best])),
            predicted_tokens=int(predicted[best]),
            available_tokens=int(predicted.max()),
            cost=field.costs.of(best),
            runner_up=(line.names[others[0]], field.costs.of(others[0])) if others else None,
            reason=self._reason(field),
        )

    def _mode(self, worker_id: str, name: str, expects: bool) -> Mode:
        if not self._strategy.knows_caches or worker_id in self.parity.suspended:
            return "load-only"
        if self._index.synced(name):
            return "events"
        return "approximate" if expects or name in self._guesses else "load-only"

    def _reason(self, field: _Field) -> Reason:
        best, *others = field.order
        if not others:
            return "only-worker"
        if self._strategy.name == "round-robin":
            return "turn"
        if field.ranks[best] == field.ranks[others[0]]:
            return "tie"
        expected, predicted = field.costs.expected, field.reach.predicted
        if expected[best] > expected[others[0]]:
            return "sibling" if expected[best] > predicted[best] else "prefix"
        busy = self._strategy.knows_caches and predicted.max() > expected[best]
        return "holder-busy" if busy else "load"


def _first_two(ranks: Floats, seeds: NDArray[np.uint64], chain: BlockChain) -> list[int]:
    """Places of the lowest and the second lowest rank; infinite ones are not chosen."""
    last = xxhash.xxh3_64_intdigest(chain.hashes[-1]) if chain.hashes else 0
    ties = (seeds ^ np.uint64(last)) * _MIX
    order: list[int] = []
    left = ranks.copy()
    for _ in range(min(2, int(np.isfinite(ranks).sum()))):
        equal = np.flatnonzero(left == left.min())
        place = int(equal[ties[equal].argmin()])
        order.append(place)
        left[place] = np.inf
    return order
