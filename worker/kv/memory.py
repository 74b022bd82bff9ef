"""KV memory: finds the prefix that a sequence can reuse, keeps what it computes, and says so in events."""

import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from cacheplane.identity import Namespace, Span, block_hash
from cacheplane.wire import Event, SnapshotBlock, Tier
from worker.kv.disk import DiskTier
from worker.kv.events import EventLog
from worker.kv.figures import KVFigures
from worker.kv.holding import Arrival, Holding
from worker.kv.host import HostTier
from worker.kv.leases import DEFAULT_PRIORITY, LeaseBook, LeaseRange
from worker.kv.loading import Loader, Part
from worker.kv.pool import BlockPool
from worker.kv.radix import NOWHERE, Node, OnDisk, RadixTree
from worker.kv.slots import Slots
from worker.kv.tiers import Tiers, record_of
from worker.wire import Cached, Retention

Tokens: TypeAlias = "array[int]"  # array("I"): token ids as unsigned 32-bit integers

_PRIOR_GBPS = {Tier.HOST: 4.0, Tier.DISK: 0.5}  # until a load has been measured


@dataclass(frozen=True, slots=True)
class KVLimits:
    """What KV memory may use beyond the device pool.

    host_bytes, disk_bytes   0 switches a tier off
    folder, fingerprint      where the disk tier lives, and whose KV it holds
    gate                     effective priority from which a block is copied down when its last copy would go
    lease_blocks             blocks that one tag may have under lease
    """

    host_bytes: int = 0
    disk_bytes: int = 0
    folder: Path = Path()
    fingerprint: str = ""
    gate: int = 20
    lease_blocks: int = 1024


class KVMemory:
    """The radix tree, the tiers, the leases and the slots, kept in step.

    prefill_tps   tokens a second that the engine computes, set by it as it measures; 0 while unknown. A block is loaded
                  back only when that is quicker than computing it.

    Only the engine's thread calls it, between forward passes: a block is filled by copying from a slot whose positions
    are already computed, so a node in the tree always has its KV.
    """

    def __init__(
        self,
        slots: Slots,
        pool: BlockPool,
        limits: KVLimits | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        spoil_freed: bool = False,
    ) -> None:
        limits = limits or KVLimits()
        self.slots, self.pool = slots, pool
        self.tree = RadixTree()
        self.prefill_tps = 0.0
        self.leases: LeaseBook[Node] = LeaseBook(
            clock, budget_blocks=limits.lease_blocks, default_priority=DEFAULT_PRIORITY
        )
        self._events = EventLog(slots.block_size)
        disk = DiskTier(limits.folder, slots.shape, slots.block_size, limits.disk_bytes, limits.fingerprint)
        self.tiers = Tiers(
            self.tree,
            slots,
            pool,
            HostTier(slots.shape, slots.block_size, limits.host_bytes),
            disk,
            self.leases,
            self._events,
            gate=limits.gate,
            spoil_freed=spoil_freed,
        )
        self._loader = Loader(slots)
        self._arrivals: list[Arrival] = []
        self.tiers.adopt(disk.scan())

    @property
    def block_size(self) -> int:
        return self.slots.block_size

    def load_tps(self, tier: Tier) -> float:
        """Tokens a second that come back from a tier: as measured, or a guess until then."""
        return (self._loader.rates[tier].gbps or _PRIOR_GBPS[tier]) * 1e9 / self.slots.shape.bytes_per_token

    def open(self, tokens: Tokens, spans: Sequence[Span], *, store: bool = True) -> Holding | None:
        """Gives a sequence a slot that begins with the longest known prefix of tokens; None when all slots are busy.

        At least one token is left to compute, since its logits are wanted. Blocks on host and disk are still on their
        way when this returns: see Holding.loading and `poll`.
        """
        slot = self.slots.take()
        if slot is None:
            return None
        path = self._worth_using(self._path(tokens, spans, (len(tokens) - 1) // self.block_size))
        node = path[-1] if path else self.tree.root
        holding = Holding(slot, node, {span.start: span.namespace for span in spans}, storing=store)
        self.tree.hold(node)
        self.leases.used(path)
        self._bring_in(holding, path)
        return holding

    def known(self, tokens: Tokens, spans: Sequence[Span]) -> int:
        """How many full blocks of these tokens are in the tree, from the first on, on whatever tier."""
        return len(self._path(tokens, spans, len(tokens) // self.block_size))

    def poll(self) -> None:
        """Takes note of what loader and disk have finished; once a step."""
        arrived = [arrival for arrival in self._arrivals if arrival.future.done()]
        if arrived:
            self._arrivals = [arrival for arrival in self._arrivals if not arrival.future.done()]
        for arrival in arrived:
            self._arrive(arrival)
        self.tiers.poll()

    def extend(self, holding: Holding, tokens: Tokens, computed: int) -> None:
        """Stores the full blocks among the first `computed` tokens that are not in the tree yet."""
        while holding.storing and (holding.stored + 1) * self.block_size <= computed:
            edge, namespace = self._edge(tokens, holding.namespaces, holding.stored)
            node = holding.node.kid(edge) or self._insert(holding.node, edge, namespace)
            if node.block == NOWHERE and not self._copy_out(holding.slot, holding.stored, node) and not node.resident:
                self.tree.remove(node)
                holding.storing = False
                return
            node.users += 1  # the way to it is held already
            self.leases.used((node,))
            holding.node = node
            holding.stored += 1

    def close(self, holding: Holding, tag: str = "", retention: Retention | None = None) -> None:
        """The sequence has ended: its slot is free, its blocks stay until they are evicted, longer if under a lease."""
        if holding.loading:
            holding.closed = True  # the loader is still writing into the slot; `poll` closes it
            return
        if retention is not None:
            self._grant(holding, tag, retention)
        free = self.tree.drop(holding.node)
        self.leases.released(reversed(free))
        self.tiers.released(free)
        self.slots.give_back(holding.slot)

    def release(self, tag: str, session: str, tokens: Tokens, spans: Sequence[Span]) -> int:
        """The owner will not come back to this prefix: its leases end, and its blocks go first. Returns how many."""
        if session:
            self.leases.drop_session(tag, session)
        path = self._path(tokens, spans, len(tokens) // self.block_size)
        self.leases.drop_blocks(tag, path)
        for node in path:
            node.last_used = 0
            self.tiers.offer(node)
        return len(path)

    def clear(self) -> None:
        """Forgets every block that no running sequence stands on, in every tier."""
        for node in list(self.tree.root.children()):
            self._clear(node)
        if not len(self.tree):
            self._events.cleared()

    def shut(self) -> int:
        """Writes to disk what only memory has, and stops the threads; returns how many blocks were written."""
        self._loader.close()
        kept = self.tiers.keep_all() if self.tiers.disk.capacity else 0
        self.tiers.disk.close()
        self.tiers.poll()
        return kept

    def take_events(self) -> list[Event]:
        """What came and went since the last call, in order."""
        return self._events.take()

    def snapshot(self) -> list[SnapshotBlock]:
        """Every block on every tier, parents before children; consistent with the events when those were taken last."""
        blocks = []
        for node in self.tree.walk():
            parent = node.parent.digest or None if node.parent else None
            blocks += [SnapshotBlock(node.digest, parent, tier) for tier in _tiers_of(node)]
        return blocks

    def figures(self) -> KVFigures:
        """For metrics."""
        tiers, moves = self.tiers, self.tiers.moves
        return KVFigures(
            host_blocks=tiers.host.total - tiers.host.free,
            disk_blocks=tiers.disk.bytes_used // tiers.disk.file_bytes,
            offloaded=moves.offloaded,
            written=moves.written,
            promoted=moves.promoted,
            lost=moves.lost,
            leases={tag: replace(tally) for tag, tally in self.leases.tallies().items()},
        )

    def check(self) -> None:
        """The books of tree, tiers and leases; RuntimeError when they do not balance. For tests, and when idle."""
        self.tree.check()
        self.tiers.check()
        self.leases.check()

    def _path(self, tokens: Tokens, spans: Sequence[Span], blocks: int) -> list[Node]:
        """The nodes of the longest known prefix among the first `blocks` blocks."""
        width, raw = self.block_size * tokens.itemsize, tokens.tobytes()
        edges = [raw[at : at + width] for at in range(0, blocks * width, width)]
        for span in spans:
            if span.start < blocks * self.block_size:
                index = span.start // self.block_size
                edges[index] = span.namespace.key + edges[index]
        return self.tree.match(edges)

    def _edge(self, tokens: Tokens, namespaces: dict[int, Namespace], index: int) -> tuple[bytes, Namespace | None]:
        start = index * self.block_size
        namespace = namespaces.get(start)
        raw = tokens[start : start + self.block_size].tobytes()
        return (raw if namespace is None else namespace.key + raw), namespace

    # Bringing in

    def _worth_using(self, path: list[Node]) -> list[Node]:
        """The beginning of a known path that is quicker to have than to compute."""
        host_pays = self.load_tps(Tier.HOST) > self.prefill_tps
        disk_pays = self.load_tps(Tier.DISK) > self.prefill_tps
        for index, node in enumerate(path):
            on_host = node.host != NOWHERE and host_pays
            on_disk = node.disk == OnDisk.PRESENT and disk_pays
            if node.block == NOWHERE and not on_host and not on_disk:
                return path[:index]
        return path

    def _bring_in(self, holding: Holding, path: list[Node]) -> None:
        """Copies what is on the device now, and starts the loader on the rest."""
        brought, parts = [], []
        for index, node in enumerate(path):
            position = index * self.block_size
            if node.block != NOWHERE:
                self.slots.put(holding.slot, position, *self.slots.block(node.block))
            else:
                brought.append(index)
                parts.append(self._part(position, node))
        if parts:
            holding.loading = True
            self._arrivals.append(Arrival(holding, path, brought, self._loader.start(holding.slot, parts)))
        else:
            self._begin(holding, path, Cached(device=len(path) * self.block_size))

    def _part(self, position: int, node: Node) -> Part:
        if node.host != NOWHERE:
            view = self.tiers.host.read(node.host)
            return Part(position, Tier.HOST, lambda: view)
        return Part(position, Tier.DISK, self.tiers.disk.load(record_of(node)).result)

    def _arrive(self, arrival: Arrival) -> None:
        """The loader is done: the sequence begins with what has come, up to the first block that was a miss."""
        holding, path, came = arrival.holding, arrival.path, arrival.future.result()
        on_host = [index for index in arrival.brought if path[index].host != NOWHERE]
        for index in on_host:
            self.tiers.host.done(path[index].host)
        usable = arrival.brought[came] if came < len(arrival.brought) else len(path)
        host = sum(index < usable for index in on_host) * self.block_size
        disk = sum(index < usable for index in arrival.brought) * self.block_size - host
        if usable < len(path):
            self._step_back(holding, path, usable)
        self._promote(holding.slot, path, [index for index in arrival.brought if index < usable])
        self._begin(holding, path[:usable], Cached(usable * self.block_size - host - disk, host, disk))
        if holding.closed:
            self.close(holding)

    def _begin(self, holding: Holding, path: list[Node], cached: Cached) -> None:
        holding.loading = False
        holding.stored = len(path)
        holding.reused = len(path) * self.block_size
        holding.cached = cached

    def _step_back(self, holding: Holding, path: list[Node], usable: int) -> None:
        """The sequence stands on the last block that came, no longer on the end of the path."""
        node = path[usable - 1] if usable else self.tree.root
        self.tree.hold(node)
        free = self.tree.drop(holding.node)
        holding.node = node
        self.leases.released(reversed(free))
        self.tiers.released(free)

    def _promote(self, slot: int, path: list[Node], brought: list[int]) -> None:
        """Blocks that were loaded go on the device too, as long as there is room."""
        for index in brought:
            if path[index].block == NOWHERE and not self._copy_out(slot, index, path[index]):
                return
            self.tiers.moves.promoted += 1

    # Keeping

    def _insert(self, parent: Node, edge: bytes, namespace: Namespace | None) -> Node:
        raw = edge[-4 * self.block_size :]
        return self.tree.insert(parent, edge, block_hash(parent.digest or None, namespace, raw))

    def _copy_out(self, slot: int, index: int, node: Node) -> bool:
        """Copies one block of a slot to the device pool; False when no room can be made."""
        block = self.tiers.device_block()
        if block is None:
            return False
        self.slots.copy_out(slot, index * self.block_size, block)
        self.tiers.place(node, block)
        return True

    def _grant(self, holding: Holding, tag: str, retention: Retention) -> None:
        path = list(reversed(list(self.tree.way(holding.node))))
        ranges = []
        for term in retention.ranges:
            end = len(path) if term.end is None else min(len(path), -(-term.end // self.block_size))
            blocks = path[term.start // self.block_size : end]
            ranges.append(LeaseRange(blocks, term.priority, term.ttl_ms / 1000))
        self.leases.grant(tag, retention.session, ranges)
        self.tiers.poll()  # what the last lease of the session covered alone has fallen back

    def _clear(self, node: Node) -> None:
        if not node.users:
            self.tiers.forget(node, "cleared")
            return
        for kid in list(node.children()):
            self._clear(kid)


def _tiers_of(node: Node) -> list[Tier]:
    tiers = [Tier.DEVICE] if node.block != NOWHERE else []
    tiers += [Tier.HOST] if node.host != NOWHERE else []
    return tiers + ([Tier.DISK] if node.disk == OnDisk.PRESENT else [])
