"""A small fleet without sockets: real rendering, identity, index, placement and attribution, over pretend caches."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from cacheplane.attribution import Attribution, Departures, Divergence, Misses, Origin, Outlook, Reason
from cacheplane.attribution.contents import Contents
from cacheplane.attribution.memory import Memory
from cacheplane.fleet import Fleet
from cacheplane.identity import BlockChain, Namespace, Scope, derive_salt
from cacheplane.index import PrefixIndex
from cacheplane.placement import Decision, Placement
from cacheplane.report import LoadReport
from cacheplane.strategy import StrategyName
from cacheplane.wire import AllBlocksCleared, Batch, BlockRemoved, BlockStored, Event, Snapshot, SnapshotBlock, Tier
from cacheplane.worker import Worker
from gateway.chat.messages import Message, Tool
from gateway.render import Renderer
from tests.cacheplane.oracle import restore
from tests.gateway.small_bpe import renderer_model

SECRET = b"a master secret of thirty-two bytes, or some more"
# Fixed: under one key in fifty, two blocks of a prompt take each other's place in the table of strangers.
CONTENTS = Contents(bytes(range(32)))
BLOCK = 16
RENDERER = Renderer(renderer_model())


@dataclass
class Told:
    """What a request was told, and what it was."""

    prompt: int
    cached: int
    misses: Misses
    decision: Decision
    template: str

    @property
    def reasons(self) -> set[Reason]:
        return set(self.misses.tokens)

    @property
    def divergence(self) -> Divergence:
        assert self.misses.divergence is not None
        return self.misses.divergence

    def of(self, reason: Reason) -> int:
        return self.misses.tokens.get(reason, 0)

    @property
    def worst(self) -> Reason:
        """The reason with most tokens, the unavoidable tail left out."""
        tokens = {reason: count for reason, count in self.misses.tokens.items() if reason is not Reason.BELOW_BLOCK}
        return max(tokens, key=lambda reason: tokens[reason])


@dataclass
class Cache:
    """One worker's blocks, least recently used first. `mute`: what it does, it does not tell."""

    capacity: int = 10**9
    host: int = 0
    blocks: OrderedDict[bytes, Tier] = field(default_factory=OrderedDict)
    mute: bool = False

    def match(self, hashes: Sequence[bytes]) -> int:
        depth = 0
        while depth < len(hashes) and hashes[depth] in self.blocks:
            depth += 1
        return depth


class World:
    """Requests run one after the other unless they are opened and closed by hand."""

    def __init__(self, *workers: str, capacity: int = 10**9, host: int = 0, strategy: StrategyName = "cost") -> None:
        self.now = 0.0
        self.fleet = Fleet(suspect_after=1e9, gone_after=1e9)
        self.index = PrefixIndex()
        self.departures = Departures(self.index, slots=1 << 16)
        self.placement = Placement(self.fleet, self.index, lambda: self.now, strategy)
        self.caches = {name: Cache(capacity, host) for name in workers or ("w0",)}
        self.attribution = self.fresh()
        self.epochs: dict[str, int] = {}
        for name in self.caches:
            self.join(name)

    def fresh(self) -> Attribution:
        """As after a restart of the gateway: nothing is remembered."""
        return Attribution(
            SECRET, self.fleet, self.index, self.departures, clock=lambda: self.now, memory=Memory(), contents=CONTENTS
        )

    def join(self, name: str) -> None:
        self.fleet.join(Worker(name, f"http://{name}", "m", "f"))
        self.report(name)
        restore(self.departures, name, self.snapshot(name))

    def report(self, name: str, **figures: Any) -> None:
        self.fleet.observe(name, LoadReport(**{"epoch": 1, "prefill_tps": 1000.0, **figures}), self.now)

    def snapshot(self, name: str) -> Snapshot:
        return Snapshot(
            1, -1, BLOCK, [SnapshotBlock(key, None, tier) for key, tier in self.caches[name].blocks.items()]
        )

    # What may happen to a worker

    def leave(self, name: str) -> None:
        """The process has ended and another one is met, or none: see `WorkerLink`."""
        self.fleet.leave(name)
        self.departures.drop(name)
        self.caches[name].blocks.clear()

    def clear(self, name: str) -> None:
        self.caches[name].blocks.clear()
        self.tell(name, AllBlocksCleared())

    def evict(self, name: str, blocks: int = 10**9, reason: str = "evicted") -> None:
        """Takes the last `blocks` blocks out of whatever tier they are in."""
        cache = self.caches[name]
        for key in list(cache.blocks)[::-1][:blocks]:
            self.tell(name, BlockRemoved([key], cache.blocks.pop(key), reason))

    def offload(self, name: str, tier: Tier) -> None:
        """Everything goes one tier down."""
        cache = self.caches[name]
        for key, before in list(cache.blocks.items()):
            self.tell(name, BlockStored([key], None, BLOCK, tier), BlockRemoved([key], before, "offloaded"))
            cache.blocks[key] = tier

    def tell(self, name: str, *events: Event) -> None:
        if not self.caches[name].mute:
            self.departures.apply(name, Batch(0.0, list(events)))

    # Requests

    def ask(self, *messages: Message, **asked: Any) -> Told:
        """A whole request, served, long before the next one."""
        request = self.open(*messages, **asked)
        self.close(request)
        self.now += 60
        return request.told

    def open(
        self,
        *messages: Message,
        tools: Sequence[Tool] = (),
        tenant: str = "acme",
        sub: str = "",
        store: bool = True,
        exclude: Sequence[str] = (),
    ) -> "Request":
        """Up to the worker's start frame: placed, attributed, its prompt not computed yet."""
        rendered = RENDERER.render(messages, tools, partition=tenant)
        epoch = self.epochs.get(tenant, 0)
        salt = derive_salt(SECRET, Scope("tenant", tenant), epoch)
        chain = BlockChain.of(rendered.tokens, Namespace.derive(salt=salt, model="f", kv_dtype="f32", sub=sub), BLOCK)
        origin = Origin(tenant, "m", ("f", sub), epoch, store)
        sketch = self.attribution.sketch(origin, rendered.tokens, BLOCK, rendered.segments)
        decision = self.placement.decide("m", chain, len(rendered.tokens), exclude)
        outlook = self.attribution.outlook("m", chain, decision.predicted_tokens, decision.available_tokens)
        most = (len(rendered.tokens) - 1) // BLOCK
        cached = BLOCK * min(most, self.caches[decision.worker.id].match(chain.hashes))
        misses = self.attribution.attribute(sketch, chain, outlook, cached)
        told = Told(len(rendered.tokens), cached, misses, decision, sketch.template)
        assert told.prompt == told.cached + sum(misses.tokens.values())
        return Request(told, chain, sketch, store, outlook)

    def close(self, request: "Request", *, served: bool = True) -> None:
        worker = request.told.decision.worker.id
        if served and request.store:
            self._keep(worker, request.chain.hashes)
        self.placement.finished(request.told.decision, request.told.cached if served else None)
        self.attribution.finished(request.sketch, served=served)

    def _keep(self, name: str, hashes: Sequence[bytes]) -> None:
        cache = self.caches[name]
        for key in hashes:
            if key not in cache.blocks:
                self.tell(name, BlockStored([key], None, BLOCK))
            cache.blocks[key] = Tier.DEVICE
            cache.blocks.move_to_end(key)
        # The deepest blocks of what was used least recently go first, as leaves of a tree do.
        while len(cache.blocks) > cache.capacity:
            mine = set(hashes)
            key = next((key for key in reversed(cache.blocks) if key not in mine), next(reversed(cache.blocks)))
            self.tell(name, BlockRemoved([key], cache.blocks.pop(key), "evicted"))


@dataclass
class Request:
    told: Told
    chain: BlockChain
    sketch: Any
    store: bool
    outlook: Outlook
