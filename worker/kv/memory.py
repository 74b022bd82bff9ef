"""KV memory: finds the prefix that a sequence can reuse, keeps what it computes, and says so in events."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cacheplane.identity import TOKEN_BYTES, Span, block_hash
from cacheplane.wire import Event, SnapshotBlock, Tier
from worker.kv.accounts import ByTier
from worker.kv.copying import Copier, copier_for
from worker.kv.disk import DiskTier
from worker.kv.edges import Tokens, edge_at
from worker.kv.events import EventLog
from worker.kv.figures import KVFigures
from worker.kv.holding import Holding
from worker.kv.host import HostTier
from worker.kv.layout import Layout
from worker.kv.leases import LeaseBook
from worker.kv.radix import NOWHERE, Node, OnDisk, RadixTree
from worker.kv.ranges import DEFAULT_PRIORITY, LeaseRange
from worker.kv.reuse import Reuse
from worker.kv.tails import Tails
from worker.kv.tiers import Tiers, home_of
from worker.wire import Retention

_TAILS = 4  # for each slot


@dataclass(frozen=True, slots=True)
class KVLimits:
    """What KV memory may use beyond the device pool.

    host_bytes, disk_bytes   0 switches a tier off
    folder, fingerprint      where the disk tier lives, and whose KV it holds
    gate                     effective priority from which a block is copied down when its last copy would go
    lease_blocks             blocks that one tag may have under lease on the device; None for half of it
    lease_host_blocks        the same on host
    lease_disk_blocks        the same on disk
    tails                    ends of sequences, shorter than a block, that are kept too; None for four for each slot
    """

    host_bytes: int = 0
    disk_bytes: int = 0
    folder: Path = Path()
    fingerprint: str = ""
    gate: int = 20
    lease_blocks: int | None = None
    lease_host_blocks: int | None = None
    lease_disk_blocks: int | None = None
    tails: int | None = None

    def lease_budget(self, device: int, host: int, disk: int) -> ByTier:
        """Of tiers that hold so many blocks."""
        asked = (self.lease_blocks, self.lease_host_blocks, self.lease_disk_blocks)
        given = zip(asked, (device, host, disk), strict=True)
        return ByTier(*(held // 2 if blocks is None else blocks for blocks, held in given))


class KVMemory:
    """The radix tree, the tiers, the leases and the layout, kept in step.

    copier        how blocks are copied between the tiers; by default as the layout's device needs it
    spoil_freed   for tests: blocks that hold nothing are NaN

    Only the engine's thread calls it, between forward passes. A block comes into the tree when its tokens are computed,
    so a node in the tree always has its KV.
    """

    def __init__(
        self,
        layout: Layout,
        limits: KVLimits | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        copier: Copier | None = None,
        spoil_freed: bool = False,
    ) -> None:
        limits = limits or KVLimits()
        self.layout, self.pool, self.slots = layout, layout.pool, layout.slots
        self.tree = RadixTree()
        self._events = EventLog(layout.block_size)
        host = HostTier(layout.shape, layout.block_size, limits.host_bytes, pinned=layout.device.type == "cuda")
        disk = DiskTier(limits.folder, layout.shape, layout.block_size, limits.disk_bytes, limits.fingerprint)
        budget = limits.lease_budget(self.pool.total, host.total, disk.capacity)
        self.leases: LeaseBook[Node] = LeaseBook(clock, home_of, budget=budget, default_priority=DEFAULT_PRIORITY)
        self.tiers = Tiers(
            self.tree,
            layout,
            host,
            disk,
            self.leases,
            self._events,
            copier or copier_for(layout.device, layout.store.block(0)),
            gate=limits.gate,
            spoil_freed=spoil_freed,
        )
        tails = _TAILS * layout.slots.total if limits.tails is None else limits.tails
        self.tails = Tails(layout, tails, spoil_freed=spoil_freed)
        self.reuse = Reuse(self.tree, layout, self.tiers, self.tails)
        if spoil_freed:
            layout.pool.on_free = layout.store.spoil
            for block in range(layout.pool.total):
                layout.store.spoil(block)
        self.tiers.adopt(disk.scan())

    @property
    def block_size(self) -> int:
        return self.layout.block_size

    @property
    def loading(self) -> bool:
        """Whether blocks are on their way from host or disk."""
        return self.reuse.loading

    def open(self, tokens: Tokens, spans: Sequence[Span], *, store: bool = True) -> Holding | None:
        """Gives a sequence a slot that begins with the longest known prefix of tokens; None when there is no room.

        At least one token is left to compute, since its logits are wanted. Blocks on host and disk are still on their
        way when this returns: see Holding.loading and `poll`.
        """
        if not self.slots.free:
            return None
        path = self.reuse.worth_using(self.reuse.path(tokens, spans, (len(tokens) - 1) // self.block_size))
        running = sum(node.block != NOWHERE and self.pool.holders(node.block) > 0 for node in path)
        if not self._has_room(self.layout.blocks_for(len(tokens) + 1) - running):
            return None
        slot = self.slots.take()
        assert slot is not None
        node = path[-1] if path else self.tree.root
        holding = Holding(slot, node, {span.start: span.namespace for span in spans}, storing=store)
        self.tree.hold(node)
        self.tree.touch(path)
        self.leases.used(path)
        self.reuse.bring_in(holding, tokens, path)
        return holding

    def fork(self, source: Holding, tokens: int) -> Holding | None:
        """Gives another sequence a slot that begins with the first `tokens` tokens of a running one.

        before    the source has computed these tokens, and the next one of both is the same or not
        returns   None when there is no room now
        """
        if not self.slots.free or not self._has_room(self.layout.blocks_for(1)):
            return None
        slot = self.slots.take()
        assert slot is not None
        self.layout.fork(source.slot, slot, tokens)
        if not self.layout.prepare(slot, tokens, tokens + 1):
            self.layout.leave(slot)
            return None
        stored, node = min(source.stored, tokens // self.block_size), source.node
        for _ in range(source.stored - stored):
            assert node.parent is not None
            node = node.parent
        self.tree.hold(node)
        return Holding(slot, node, source.namespaces, source.storing, reused=tokens, stored=stored)

    def prepare(self, holding: Holding, start: int, end: int) -> bool:
        """Whether positions start .. end - 1 of the sequence may be computed now; False when there is no room."""
        return self.layout.prepare(holding.slot, start, end)

    def known(self, tokens: Tokens, spans: Sequence[Span]) -> int:
        """How many full blocks of these tokens are in the tree, from the first on, on whatever tier."""
        return len(self.reuse.path(tokens, spans, len(tokens) // self.block_size))

    def poll(self) -> None:
        """Takes note of what loader and disk have finished; once a step."""
        for holding in self.reuse.poll():
            self.close(holding)
        self.tiers.poll()

    def extend(self, holding: Holding, tokens: Tokens, computed: int) -> None:
        """Stores the full blocks among the first `computed` tokens that are not in the tree yet."""
        used: list[Node] = []
        while holding.storing and (holding.stored + 1) * self.block_size <= computed:
            node = self._next(holding, tokens)
            node.users += 1  # the way to it is held already; and it must not go to make room for itself
            if not self.tiers.keep(node, holding.slot, holding.stored) and not node.resident:
                node.users -= 1
                if not node.users:  # else another one waits for a copy of it that the disk has dropped meanwhile
                    self.tree.remove(node)
                holding.storing = False
                break
            used.append(node)
            holding.node = node
            holding.stored += 1
        self.tree.touch(used)
        self.leases.used(used)

    def keep_tail(self, holding: Holding, tokens: Tokens, computed: int) -> None:
        """Before a sequence ends: what it has computed behind its last full block is kept too. See Tails."""
        self.tails.keep(holding, tokens, computed)

    def close(self, holding: Holding, tag: str = "", retention: Retention | None = None) -> None:
        """The sequence has ended: its slot is free, its blocks stay until they are evicted, longer if under a lease."""
        if holding.loading:
            holding.closed = True  # the loader is still writing into the slot; `poll` closes it
            return
        if retention is not None:
            self._grant(list(reversed(list(self.tree.way(holding.node)))), tag, retention)
        self.layout.leave(holding.slot)
        self.tiers.let_go(holding.node)

    def release(self, tag: str, session: str, tokens: Tokens, spans: Sequence[Span]) -> int:
        """The owner will not come back to this session, nor to this prefix: its leases end, and the prefix's blocks go
        first. Returns how many these are."""
        if session:
            self.leases.drop_session(tag, session)
        path = self.reuse.path(tokens, spans, len(tokens) // self.block_size)
        self.leases.drop_blocks(tag, path)
        for node in path:
            self.tiers.give_up(node)
        namespaces = {span.start: span.namespace for span in spans}
        self.tails.forget(path[-1] if path else self.tree.root, namespaces, len(path) * self.block_size)
        self.tiers.poll()  # what the leases that have ended covered beyond the path has fallen back
        return len(path)

    def retain(self, tag: str, retention: Retention, tokens: Tokens, spans: Sequence[Span]) -> int:
        """A lease on the blocks that are held of a prefix, in use or not; the time of others on them runs anew too.

        returns   how many of them there was budget for
        """
        path = self.reuse.path(tokens, spans, len(tokens) // self.block_size)
        granted = self._grant(path, tag, retention)
        self.leases.released(node for node in path if not node.users)
        return granted

    def shut(self) -> int:
        """Writes to disk what only memory has, and stops the threads; returns how many blocks came to disk by it."""
        self.reuse.close()
        self.tiers.poll()
        before = self.tiers.moves.written
        if self.tiers.disk.capacity:
            self.tiers.keep_all()
        self.tiers.disk.close()
        self.tiers.poll()
        return self.tiers.moves.written - before

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
        host, disk = tiers.host, tiers.disk
        unit = self.layout.shape.bytes_per_token * self.block_size
        device = self.pool.total - self.pool.free
        tallies = self.leases.tallies().items()
        return KVFigures(
            blocks=ByTier(device, host.total - host.free, disk.bytes_used // disk.file_bytes),
            bytes=ByTier(device * unit, host.bytes_used, disk.bytes_used),
            capacity=ByTier(self.pool.total * unit, host.total * unit, disk.capacity * disk.file_bytes),
            evicted=ByTier(moves.device_evicted, moves.host_evicted, disk.counters.evicted),
            faults=disk.counters.faults(),
            offloaded=moves.offloaded,
            written=moves.written,
            promoted=moves.promoted,
            lost=moves.lost,
            leases={tag: replace(one, refused=[*one.refused], leased=[*one.leased]) for tag, one in tallies},
        )

    def check(self) -> None:
        """The books of tree, tiers and leases after a `poll`; RuntimeError when they do not balance. For tests, and
        when idle."""
        self.tree.check()
        self.tiers.check()
        self.leases.check()
        self.tails.check()

    def _has_room(self, blocks: int) -> bool:
        """Whether a sequence that needs so many blocks can start, and all that run can grow by one more."""
        running = self.slots.total - self.slots.free
        return blocks <= 0 or blocks + running <= self.pool.available

    def _next(self, holding: Holding, tokens: Tokens) -> Node:
        """The node of the first block of a sequence that is not stored, made if need be. It may be known, and computed
        all the same: by another sequence meanwhile, or because loading takes longer."""
        start = holding.stored * self.block_size
        parent, edge = holding.node, edge_at(tokens, holding.namespaces, start, self.block_size)
        raw = edge[-TOKEN_BYTES * self.block_size :]
        known = parent.kid(edge)
        if known is not None:
            return known
        return self.tree.insert(parent, edge, block_hash(parent.digest or None, holding.namespaces.get(start), raw))

    def _grant(self, path: list[Node], tag: str, retention: Retention) -> int:
        """A lease on a path from its beginning on. Its time runs only once `released` is told of the blocks."""
        ranges = []
        for term in retention.ranges:
            end = len(path) if term.end is None else min(len(path), -(-term.end // self.block_size))
            blocks = path[term.start // self.block_size : end]
            ranges.append(LeaseRange(blocks, term.priority, term.ttl_ms / 1000))
        granted = self.leases.grant(tag, retention.session, ranges).granted
        self.tiers.poll()  # what the last lease of the session covered alone has fallen back
        return granted


def _tiers_of(node: Node) -> list[Tier]:
    tiers = [Tier.DEVICE] if node.block != NOWHERE else []
    tiers += [Tier.HOST] if node.host != NOWHERE else []
    return tiers + ([Tier.DISK] if node.disk == OnDisk.PRESENT else [])
