"""A fleet of equal idle workers to place prompts on, without sockets."""

import random

from cacheplane.fleet import Fleet
from cacheplane.identity import BlockChain, Namespace
from cacheplane.index import PrefixIndex
from cacheplane.placement import Decision, Placement
from cacheplane.report import LoadReport
from cacheplane.strategy import StrategyName
from cacheplane.wire import Batch, BlockStored, Tier
from cacheplane.worker import Worker

ACME = Namespace(b"a" * 32)
TPS = 1000.0  # one token is one millisecond


class Stage:
    """A fleet of equal idle workers, all synced, with a clock in hand."""

    def __init__(self, *names: str, synced: bool = True, strategy: StrategyName = "cost", ranks: int = 1) -> None:
        self.now = 0.0
        self.fleet, self.index = Fleet(suspect_after=1e9, gone_after=1e9), PrefixIndex()
        self.placement = Placement(self.fleet, self.index, lambda: self.now, strategy)
        for name in names:
            self.fleet.join(worker := Worker(name, f"http://{name}", "m", "f", ranks=ranks))
            self.report(name)
            for holder in worker.holders if synced else []:
                self.index.trust(holder)

    def report(self, name: str, **figures: float) -> None:
        self.fleet.observe(name, LoadReport(**{"epoch": 1, "prefill_tps": TPS, **figures}), self.now)  # type: ignore[arg-type]

    def hold(self, name: str, tokens: list[int], tier: Tier = Tier.DEVICE) -> None:
        self.index.apply(name, Batch(0.0, [BlockStored(list(chain(tokens).hashes), None, 16, tier)]))

    def decide(self, tokens: list[int], *exclude: str) -> Decision:
        return self.placement.decide("m", chain(tokens), len(tokens), exclude)

    def serve(self, tokens: list[int]) -> Decision:
        """A whole request: decided, computed, finished, and its blocks confirmed, long before the next one."""
        decision = self.decide(tokens)
        self.hold(decision.holder, tokens)
        self.placement.first_token(decision)
        self.placement.finished(decision, decision.predicted_tokens)
        self.now += 60
        return decision


def chain(tokens: list[int]) -> BlockChain:
    return BlockChain.of(tokens, ACME)


def prompt(seed: int, length: int) -> list[int]:
    source = random.Random(seed)
    return [source.randrange(50_000) for _ in range(length)]
