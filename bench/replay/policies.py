"""The placement rules that are compared, each as its project publishes it; ours is the real thing."""

import random
from collections import Counter, OrderedDict
from collections.abc import Sequence
from typing import Final

from bench.replay.trace import Request
from cacheplane.fleet import Fleet
from cacheplane.index import PrefixIndex
from cacheplane.placement import Decision, Placement
from cacheplane.report import LoadReport, Occupancy
from cacheplane.wire import Batch
from cacheplane.worker import Worker

MODEL: Final = "replay"
BLOCK_SIZE: Final = 512


class Policy:
    """Chooses a worker by number and is told what a router sees; this one takes them in turn.

    running   requests that a worker was given and has not ended
    """

    name = "round robin"
    listens = False  # whether heartbeats are delivered

    def __init__(self, workers: int) -> None:
        self.running = [0] * workers
        self._turn = -1

    def choose(self, request: Request, now: float) -> int:
        """The worker for a request that arrives at `now` (seconds); counted as running there from now on."""
        worker = self.pick(request, now)
        self.running[worker] += 1
        return worker

    def pick(self, request: Request, now: float) -> int:  # noqa: ARG002  the others look
        self._turn = (self._turn + 1) % len(self.running)
        return self._turn

    def prefilled(self, request: Request, worker: int) -> None:
        """The first token of a request came."""

    def ended(self, request: Request, worker: int, cached_tokens: int) -> None:  # noqa: ARG002
        """A request is done; cached_tokens is the worker's own count."""
        self.running[worker] -= 1

    def stored(self, worker: int, batch: Batch) -> None:
        """Block events of a worker."""

    def heard(self, worker: int, report: LoadReport, now: float) -> None:
        """A heartbeat, if the policy listens."""

    def refreshed(self, worker: int, report: LoadReport, now: float) -> None:
        """The load that came with the end of a request, if the policy listens."""

    def least_loaded(self) -> int:
        """The worker with fewest running requests; the first of equals."""
        return self.running.index(min(self.running))


class LeastLoad(Policy):
    """Fewest running requests."""

    name = "least load"

    def pick(self, request: Request, now: float) -> int:  # noqa: ARG002
        return self.least_loaded()


class Indexed(Policy):
    """A policy that knows by events what every worker holds."""

    def __init__(self, workers: int) -> None:
        super().__init__(workers)
        self.index = PrefixIndex()
        self._numbers = {f"w{number:03d}": number for number in range(workers)}
        self._ids = list(self._numbers)
        for worker_id in self._ids:
            self.index.trust(worker_id)

    def stored(self, worker: int, batch: Batch) -> None:
        self.index.apply(self._ids[worker], batch)

    def overlaps(self, request: Request) -> dict[int, int]:
        """Blocks that each worker holds of a prompt, from the first on; workers with none are left out."""
        return {self._numbers[name]: overlap.blocks for name, overlap in self.index.match(request.chain.keys).items()}


class LongestOverlap(Indexed):
    """Most blocks held, then fewest running requests: what vllm-project/router's `kv_aware` does."""

    name = "longest overlap"

    def pick(self, request: Request, now: float) -> int:  # noqa: ARG002
        overlaps = self.overlaps(request)
        return min(range(len(self.running)), key=lambda worker: (-overlaps.get(worker, 0), self.running[worker]))


class SGLangCacheAware(Policy):
    """The cache-aware rule of the SGLang router (sgl-router 0.3), with its default thresholds.

    Fewest running requests while max - min > 64 and max > 1.5 min; else the worker whose tree of own past decisions
    matches most, if that is over 0.3 of the prompt; else the worker with the smallest tree. A tree holds 2**26
    characters, here at 4 a token.
    """

    name = "SGLang cache-aware"
    cache_threshold = 0.3
    balance_abs = 64
    balance_rel = 1.5
    tree_blocks = 2**26 // (4 * BLOCK_SIZE)

    def __init__(self, workers: int) -> None:
        super().__init__(workers)
        self.trees: list[OrderedDict[bytes, None]] = [OrderedDict() for _ in range(workers)]

    def pick(self, request: Request, now: float) -> int:  # noqa: ARG002
        worker = self._rule(request.chain.hashes)
        tree = self.trees[worker]
        for key in reversed(request.chain.hashes):
            tree[key] = None
            tree.move_to_end(key)
        while len(tree) > self.tree_blocks:
            tree.popitem(last=False)
        return worker

    def _rule(self, hashes: Sequence[bytes]) -> int:
        most, least = max(self.running), min(self.running)
        if most - least > self.balance_abs and most > self.balance_rel * least:
            return self.least_loaded()
        depths = [_depth(tree, hashes) for tree in self.trees]
        deepest = max(depths)
        if deepest > self.cache_threshold * len(hashes):
            return depths.index(deepest)
        sizes = [len(tree) for tree in self.trees]
        return sizes.index(min(sizes))


class DynamoCost(Indexed):
    """Dynamo's published cost, overlap weight 1, temperature 0; equal costs are drawn among.

    blocks that the worker would have to compute, its queue included, plus distinct blocks that would be active on it.
    """

    name = "Dynamo cost"
    overlap_weight = 1.0

    def __init__(self, workers: int) -> None:
        super().__init__(workers)
        self.active: list[Counter[bytes]] = [Counter() for _ in range(workers)]
        self.computing = [0.0] * workers  # tokens
        self._charged: dict[int, float] = {}
        self._draw = random.Random(0)

    def pick(self, request: Request, now: float) -> int:  # noqa: ARG002
        overlaps = self.overlaps(request)
        costs = [self._cost(request, worker, overlaps.get(worker, 0)) for worker in range(len(self.running))]
        lowest = min(costs)
        worker = self._draw.choice([number for number, cost in enumerate(costs) if cost == lowest])
        self.active[worker].update(request.chain.hashes)
        self._charged[id(request)] = _uncached(request, overlaps.get(worker, 0))
        self.computing[worker] += self._charged[id(request)]
        return worker

    def _cost(self, request: Request, worker: int, overlap: int) -> float:
        active = self.active[worker]
        prefill = (self.computing[worker] + _uncached(request, overlap)) / request.chain.block_size
        decode = len(active) + sum(key not in active for key in request.chain.hashes)
        return self.overlap_weight * prefill + decode

    def prefilled(self, request: Request, worker: int) -> None:
        self.computing[worker] -= self._charged.pop(id(request))

    def ended(self, request: Request, worker: int, cached_tokens: int) -> None:
        super().ended(request, worker, cached_tokens)
        active = self.active[worker]
        active.subtract(request.chain.hashes)
        for key in request.chain.hashes:
            if not active[key]:
                del active[key]


class Saltway(Indexed):
    """Ours: the gateway's own Fleet, PrefixIndex and Placement, on the trace's clock."""

    name = "Saltway"
    listens = True

    def __init__(self, workers: int) -> None:
        super().__init__(workers)
        self.now = 0.0
        self.fleet = Fleet()
        self.placement = Placement(self.fleet, self.index, lambda: self.now)
        self.decisions: dict[int, Decision] = {}
        for worker_id in self._ids:
            self.fleet.join(Worker(worker_id, "", MODEL, ""))

    def pick(self, request: Request, now: float) -> int:
        self.now = now
        decision = self.placement.decide(MODEL, request.chain, request.prompt_tokens)
        self.decisions[id(request)] = decision
        return self._numbers[decision.worker.id]

    def prefilled(self, request: Request, worker: int) -> None:  # noqa: ARG002  the decision knows
        self.placement.first_token(self.decisions[id(request)])

    def ended(self, request: Request, worker: int, cached_tokens: int) -> None:
        super().ended(request, worker, cached_tokens)
        self.placement.finished(self.decisions.pop(id(request)), cached_tokens)

    def heard(self, worker: int, report: LoadReport, now: float) -> None:
        self.fleet.observe(self._ids[worker], report, now)

    def refreshed(self, worker: int, report: LoadReport, now: float) -> None:
        occupancy = Occupancy(
            waiting=report.waiting,
            running=report.running,
            queued_prefill_tokens=report.queued_prefill_tokens,
            decode_sequences=report.decode_sequences,
            free_blocks=report.free_blocks,
        )
        self.fleet.refresh(self._ids[worker], occupancy, now)


POLICIES: Final[dict[str, type[Policy]]] = {
    "round-robin": Policy,
    "least-load": LeastLoad,
    "longest-overlap": LongestOverlap,
    "sglang": SGLangCacheAware,
    "dynamo": DynamoCost,
    "saltway": Saltway,
}


def _depth(tree: OrderedDict[bytes, None], hashes: Sequence[bytes]) -> int:
    for depth, key in enumerate(hashes):
        if key not in tree:
            return depth
    return len(hashes)


def _uncached(request: Request, overlap: int) -> float:
    return request.prompt_tokens - overlap * request.chain.block_size
