"""What a sequence need not compute: finds the blocks that its prompt begins with, and brings them into its slot."""

from collections.abc import Sequence

import msgspec

from cacheplane.identity import KEY_BYTES, TOKEN_BYTES, Span
from cacheplane.wire import Tier
from worker.kv.edges import Tokens, edge_at, edges_of
from worker.kv.holding import Arrival, Holding
from worker.kv.layout import Layout
from worker.kv.loading import Here, Loader, Part
from worker.kv.radix import NOWHERE, Node, OnDisk, RadixTree
from worker.kv.record import record_of
from worker.kv.shape import Block
from worker.kv.tails import Tails
from worker.kv.tiers import Tiers
from worker.wire import Cached

_PRIOR_GBPS = {Tier.HOST: 4.0, Tier.DISK: 0.5}  # until a load has been measured
_TRIAL = 4  # blocks that are loaded to measure a tier whose loads would not pay by what is known


class Reuse:
    """Blocks on the device are there at once; those on host and disk come by the loader, and `poll` takes note of them.

    prefill_tps   tokens a second that the engine computes; 0 while unknown. A block is loaded back only when that is
                  quicker than computing it, but for a few that measure a rate of which nothing was heard for long
    """

    def __init__(self, tree: RadixTree, layout: Layout, tiers: Tiers, tails: Tails) -> None:
        self.prefill_tps = 0.0
        self._tree, self._layout, self._tiers, self._tails = tree, layout, tiers, tails
        self._block_size = layout.block_size
        self._loader = Loader(tiers.copier, layout.shape.bytes_per_token * layout.block_size)
        self._arrivals: list[Arrival] = []

    @property
    def loading(self) -> bool:
        """Whether the loader has work."""
        return bool(self._arrivals)

    def load_tps(self, tier: Tier) -> float:
        """Tokens a second that come back from a tier: as measured, or a guess until then."""
        return (self._loader.rates[tier].gbps or _PRIOR_GBPS[tier]) * 1e9 / self._layout.shape.bytes_per_token

    def path(self, tokens: Tokens, spans: Sequence[Span], blocks: int) -> list[Node]:
        """The nodes of the longest known prefix among the first `blocks` blocks."""
        return self._tree.match(edges_of(tokens, spans, self._block_size, blocks))

    def worth_using(self, path: list[Node]) -> list[Node]:
        """The beginning of a known path that is quicker to have than to compute, or is to tell how quick it is."""
        left = {tier: self._worth_loading(tier, len(path)) for tier in (Tier.HOST, Tier.DISK)}
        for index, node in enumerate(path):
            if node.block != NOWHERE:
                continue
            tier = _below(node)
            if tier is None or not left[tier]:
                if tier is not None:
                    self._loader.rates[tier].avoid()
                return path[:index]
            left[tier] -= 1
        return path

    def _worth_loading(self, tier: Tier, most: int) -> int:
        """How many of a path's blocks are worth loading from a tier."""
        if self.load_tps(tier) > self.prefill_tps:
            return most
        return _TRIAL if self._loader.rates[tier].is_stale else 0

    def bring_in(self, holding: Holding, tokens: Tokens, path: list[Node]) -> None:
        """The slot begins with the blocks of this path, on whose end the sequence stands; see Holding.loading."""
        for node in path:
            if node.block == NOWHERE and _below(node) == Tier.DISK:
                # Before room is made for any: what that drives to disk must not drive out what is about to be loaded.
                self._tiers.disk.touch(node.digest)
        brought, parts, index = [], [], 0
        while index < len(path):
            end = next((at for at in range(index, len(path)) if path[at].block == NOWHERE), len(path))
            if end > index:
                self._layout.bring_in(holding.slot, index, [node.block for node in path[index:end]])
                index = end
                continue
            into = self._layout.expect(holding.slot, index)
            if into is None:
                path = self._step_back(holding, path, index)
                break
            brought.append(index)
            parts.append(self._part(into, path[index]))
            index += 1
        if parts:
            holding.loading = True
            came = self._loader.start(parts, lambda: not holding.closed)
            self._arrivals.append(Arrival(holding, tokens, path, brought, came))
        else:
            self._begin(holding, tokens, Cached(device=len(path) * self._block_size))

    def poll(self) -> list[Holding]:
        """Takes note of what the loader has finished; returns those whose sequences ended meanwhile."""
        arrived, coming = list[Arrival](), list[Arrival]()
        for arrival in self._arrivals:  # one look at each: a load that ends between two would be in neither list
            (arrived if arrival.future.done() else coming).append(arrival)
        self._arrivals = coming
        for arrival in arrived:
            self._arrive(arrival)
        return [arrival.holding for arrival in arrived if arrival.holding.closed]

    def close(self) -> None:
        """Ends the loader's thread."""
        self._loader.close()

    def _part(self, into: Block, node: Node) -> Part:
        if _below(node) == Tier.HOST:
            view = self._tiers.read_host(node)
            return Part(into, Tier.HOST, lambda: Here(view))
        record = record_of(node)
        return Part(into, Tier.DISK, lambda: self._tiers.disk.load(record))

    def _arrive(self, arrival: Arrival) -> None:
        """The loader is done: the sequence begins with what has come, up to the first block that has not."""
        holding, path, came = arrival.holding, arrival.path, arrival.future.result()
        on_host = [index for index in arrival.brought if path[index].host != NOWHERE]
        for index in on_host:
            self._tiers.host.done(path[index].host)
        usable = arrival.brought[came] if came < len(arrival.brought) else len(path)
        host = sum(index < usable for index in on_host) * self._block_size
        disk = sum(index < usable for index in arrival.brought) * self._block_size - host
        self._layout.arrived(holding.slot)
        if usable < len(path):
            path = self._step_back(holding, path, usable)
        self._promote(holding.slot, path, [index for index in arrival.brought if index < usable])
        self._begin(holding, arrival.tokens, Cached(usable * self._block_size - host - disk, host, disk))

    def _begin(self, holding: Holding, tokens: Tokens, cached: Cached) -> None:
        """All blocks of the path are in the slot."""
        holding.loading = False
        if holding.closed:
            return
        whole = cached.device + cached.host + cached.disk
        part = self._share_part(holding, tokens, whole)
        holding.stored = whole // self._block_size
        holding.reused = whole + part
        holding.cached = msgspec.structs.replace(cached, partial=part)
        # Who comes later counts on what is left; where there is no room in spite of all, the scheduler makes some.
        self._layout.prepare(holding.slot, holding.reused, len(tokens) + 1)

    def _share_part(self, holding: Holding, tokens: Tokens, start: int) -> int:
        """Copies what begins like the sequence's next block, at token `start`; returns how many tokens it saves.

        Edges of one length below one node begin a span all or none, so who shares a token here shares the namespace.
        """
        node, count = self._nearest(holding, tokens, start)
        most = len(tokens) - 1 - start
        tail = min(self._tails.shared(holding, tokens, start), most)
        if max(tail, min(count, most)) < 1:
            return 0
        if node is None or tail > count:
            return tail if self._tails.bring_in(holding, start) and self._may_go_on(holding, start, tail) else 0
        count = min(count, most)
        node.users += 1  # the way to it is held already; it must not be evicted for its own copy
        self._layout.bring_in(holding.slot, start // self._block_size, [node.block])
        copied = self._may_go_on(holding, start, count)
        node.users -= 1
        self._tree.touch([node])
        self._tiers.offer(node)
        return count if copied else 0

    def _nearest(self, holding: Holding, tokens: Tokens, start: int) -> tuple[Node | None, int]:
        """The block that begins most like the sequence's next one, and how many tokens they have in common."""
        edge = edge_at(tokens, holding.namespaces, start, self._block_size)
        key = KEY_BYTES if start in holding.namespaces else 0
        node, same = self._tree.nearest(holding.node, edge, key + TOKEN_BYTES * self._block_size)
        return node, (same - key) // TOKEN_BYTES

    def _may_go_on(self, holding: Holding, start: int, count: int) -> bool:
        """Whether the sequence may write behind the first `count` tokens of the block that it has got; else it goes."""
        prepared = self._layout.prepare(holding.slot, start + count, start + count + 1)
        if not prepared:
            self._layout.cut(holding.slot, start // self._block_size)
        return prepared

    def _step_back(self, holding: Holding, path: list[Node], usable: int) -> list[Node]:
        """The sequence stands on the last usable block, no longer on the end of the path; returns what is left."""
        before = holding.node
        holding.node = path[usable - 1] if usable else self._tree.root
        self._tree.hold(holding.node)
        self._layout.cut(holding.slot, usable)
        self._tiers.let_go(before)
        return path[:usable]

    def _promote(self, slot: int, path: list[Node], brought: list[int]) -> None:
        """Blocks that were loaded are on the device too, as long as there is room."""
        for index in brought:
            if not self._tiers.keep(path[index], slot, index):
                return
            self._tiers.moves.promoted += 1


def _below(node: Node) -> Tier | None:
    """The faster tier below the device that has a node's KV; None while its only copy is still being written."""
    if node.host != NOWHERE:
        return Tier.HOST
    return Tier.DISK if node.disk == OnDisk.PRESENT else None
