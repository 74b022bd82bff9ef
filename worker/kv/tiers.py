"""Device, host and disk: where a block is, where it goes when room is needed, and what that costs."""

from itertools import islice, takewhile

from cacheplane.wire import Tier
from worker.kv.archive import Archive
from worker.kv.candidates import Candidates
from worker.kv.copying import Copier, Copy
from worker.kv.disk import DiskTier
from worker.kv.events import EventLog
from worker.kv.host import HostTier
from worker.kv.layout import Layout
from worker.kv.leases import LeaseBook
from worker.kv.moves import Moves
from worker.kv.radix import NOWHERE, Node, OnDisk, RadixTree
from worker.kv.ranges import MAX_PRIORITY
from worker.kv.record import DiskRecord
from worker.kv.shape import Block


class Tiers:
    """Gives out device blocks, and moves others down to make room.

    gate   effective priority that a block needs to be copied to host or disk when its last copy would go

    A block leaves a tier leaves first, by effective priority and then recency, and never while a sequence stands on it
    or below it. Its last copy goes down one tier when its priority passes the gate, and makes room there among blocks
    of no higher priority; otherwise it is forgotten, with everything below it, since a block without its beginning
    can't be found. Only the engine's thread calls.
    """

    def __init__(
        self,
        tree: RadixTree,
        layout: Layout,
        host: HostTier,
        disk: DiskTier,
        leases: "LeaseBook[Node]",
        events: EventLog,
        copier: Copier,
        *,
        gate: int,
        spoil_freed: bool = False,
    ) -> None:
        self.pool, self.host, self.disk, self.leases = layout.pool, host, disk, leases
        self.copier = copier
        self.moves = Moves()
        self._offloading: dict[int, tuple[Node, Copy]] = {}  # by host block
        self._tree, self._layout, self._events = tree, layout, events
        self._gate = gate
        layout.take = self.device_block
        self._spoil_freed = spoil_freed
        self._archive = Archive(disk, events, self.moves, self._settle)
        self._candidates = Candidates(host, self._archive, leases)

    @property
    def writing(self) -> int:
        """Blocks on their way to disk, as of the last `poll`; until they are there they can't be read from it."""
        return self._archive.writing

    def offer(self, node: Node) -> None:
        """The node may have become one that can go."""
        self._candidates.offer(node)

    def give_up(self, node: Node) -> None:
        """Its owner does not come back to the node: of its priority it is the first to go, in every tier."""
        self._candidates.give_up(node)

    def device_block(self) -> int | None:
        """A block in state FILLING; something else is moved down for it if need be. None when nothing can go."""
        block = self.pool.take()
        if block is None and self._evict_device():
            block = self.pool.take()
        return block

    def read_host(self, node: Node) -> Block:
        """The node's KV on host, with one reader more; see HostTier.read."""
        if node.host in self._offloading:
            self._offloaded(node.host)
        return self.host.read(node.host)

    def keep(self, node: Node, slot: int, index: int) -> bool:
        """The node is on the device, with the KV of a slot's block at index; False when no room can be made."""
        block = self._layout.keep(slot, index, node.block)
        if block is None:
            return False
        if node.block == NOWHERE:
            self.pool.ready(block)
            node.block = block
            assert node.parent is not None
            node.parent.device_children += 1
            self._events.stored(node, Tier.DEVICE)
            self.leases.moved(node)
            self.offer(node)
        return True

    def let_go(self, node: Node) -> None:
        """A sequence stands on node no longer. What nobody stands on any more may go, and what is nowhere goes now."""
        free = self._tree.drop(node)
        self.leases.released(reversed(free))
        for one in free:
            if one.resident:
                self.offer(one)
            else:
                self._settle(one)

    def poll(self) -> None:
        """Takes note of what the disk has finished, and of leases that have ended."""
        for index in [index for index, (_, copy) in self._offloading.items() if copy.done]:
            self._offloaded(index)
        self._archive.poll()
        self._candidates.reoffer()

    def adopt(self, records: list[DiskRecord]) -> None:
        """Takes over what an earlier run left on disk; records come parents first."""
        self._archive.adopt(self._tree, records)

    def keep_all(self) -> None:
        """Writes to disk what only memory has and what passes the gate, before the process ends.

        What is worth most comes first, each behind what its path begins with, and no more than the disk holds: so it is
        there also where there is neither the room for all nor the time.
        """
        kept: set[Node] = set()
        for node in sorted(self._tree.walk(), key=lambda one: (-self.leases.priority(one), -one.last_used)):
            room = self.disk.capacity - len(kept)
            if not room:
                break
            new = takewhile(lambda step: step not in kept, self._tree.way(node))
            path = list(islice(new, room + 1))  # no further: what does not fit would be walked anew by each node
            if len(path) <= room:
                kept.update(path)
                for step in reversed(path):
                    if not self._comes_to_disk(step):
                        break

    def check(self) -> None:
        """The books of all tiers; RuntimeError when they do not balance."""
        nodes = list(self._tree.walk())
        self.pool.check([node.block for node in nodes if node.block != NOWHERE], self._layout.held())
        self.host.check()
        self.disk.check()
        _expect_all(sorted(n.host for n in nodes if n.host != NOWHERE), self.host.total - self.host.free, "host")
        self._candidates.check(nodes)

    def _evict_device(self) -> bool:
        """Frees one device block; False when nobody can go."""
        node = self._candidates.take_from_device()
        if node is None:
            return False
        reason = "evicted"
        if node.host == NOWHERE and node.disk == OnDisk.ABSENT and self.leases.priority(node) >= self._gate:
            reason = "offloaded" if self._to_host(node) or self._to_disk(node) else reason
        self.moves.device_evicted += 1
        if node.block != NOWHERE:  # else what made room on host was what its path begins with, and all is lost
            self._leave_device(node, reason)
            self._settle(node)
        return True

    def _to_host(self, node: Node) -> bool:
        """Copies a block from the device to host; False when no room can be made there."""
        if not self.host.free:
            self._evict_host(self._may_displace(node))
        index = self.host.take() if node.block != NOWHERE else None
        if index is None:
            return False
        block = node.block
        self.pool.copying_out(block)
        copy = self.copier.start(lambda: self.host.write(index, self._layout.store.block(block)))
        self._offloading[index] = node, copy
        copy.order()
        self.pool.copied_out(block)
        node.host = index
        assert node.parent is not None
        node.parent.host_children += 1
        self.moves.offloaded += 1
        self._events.stored(node, Tier.HOST)
        if copy.done:
            self._offloaded(index)
        return True

    def _may_displace(self, node: Node) -> int:
        """The highest priority that makes room for a node: its own, or any where others would be lost with it."""
        return self.leases.priority(node) if node.kids is None else MAX_PRIORITY

    def _evict_host(self, most: int) -> bool:
        """Frees one host block, of a priority that is at most this; False when nobody can go."""
        node = self._candidates.take_from_host(most)
        if node is None and self._offloading:
            self._offloaded(next(iter(self._offloading)))
            node = self._candidates.take_from_host(most)
        if node is None:
            return False
        if node.block == NOWHERE and node.disk == OnDisk.ABSENT and self.leases.priority(node) >= self._gate:
            self._to_disk(node)
        self.moves.host_evicted += 1
        self._leave_host(node, "offloaded" if node.disk != OnDisk.ABSENT else "evicted")
        self._settle(node)
        return True

    def _to_disk(self, node: Node) -> bool:
        """Hands a copy to the disk tier, see Archive.take; False also when there is no copy any more."""
        if not node.resident:
            return False
        if node.host == NOWHERE:
            return self._archive.take(node, self._layout.store.block(node.block), self.leases.priority(node))
        taken = self._archive.take(node, self.read_host(node), self.leases.priority(node))
        self.host.done(node.host)
        return taken

    def _comes_to_disk(self, node: Node) -> bool:
        """Whether the node is on disk or on its way there, now if not before; it goes after what is there already."""
        if node.disk != OnDisk.ABSENT:
            self.disk.touch(node.digest)
            return True
        worth = node.resident and self.leases.priority(node) >= self._gate
        return worth and (self._to_disk(node) or (self._wait_for_disk() and self._to_disk(node)))

    def _wait_for_disk(self) -> bool:
        """Takes note of one block more, at least, and of what is lost by it; False when none is on its way."""
        if not self._archive.wait():
            return False
        self.poll()
        return True

    def _leave_device(self, node: Node, reason: str) -> None:
        self.pool.give_back(node.block)
        node.block = NOWHERE
        assert node.parent is not None
        node.parent.device_children -= 1
        self._events.removed(node, Tier.DEVICE, reason)
        self.offer(node.parent)
        self.offer(node)

    def _offloaded(self, host: int) -> None:
        """A copy to host has ended, or is waited for."""
        node, copy = self._offloading.pop(host)
        copy.wait()
        self.host.ready(host)
        self.offer(node)

    def _leave_host(self, node: Node, reason: str) -> None:
        if node.host in self._offloading:
            self._offloaded(node.host)
        self.host.give_back(node.host)
        if self._spoil_freed:
            self.host.spoil(node.host)
        node.host = NOWHERE
        assert node.parent is not None
        node.parent.host_children -= 1
        self._events.removed(node, Tier.HOST, reason)
        self.offer(node.parent)

    def _settle(self, node: Node) -> None:
        """A copy of the node is gone. After its last one it is forgotten with all below it, unless a sequence stands on
        it: then it goes when that ends."""
        if node.resident:
            self.leases.moved(node)
        elif not node.users and node.parent is not None:
            for lost in [*reversed(list(self._tree.walk(node))), node]:
                self._forget(lost)

    def _forget(self, node: Node) -> None:
        """Takes a node without children out of every tier. Nobody stands on it."""
        self.leases.forgotten(node)
        if node.block != NOWHERE:
            self._leave_device(node, "orphaned")
        if node.host != NOWHERE:
            self._leave_host(node, "orphaned")
        self._archive.forget(node, "orphaned")
        self.moves.lost += 1
        self._tree.remove(node)


def home_of(node: Node) -> Tier:
    """The fastest tier that has the node's KV, whose budget its leases are charged to."""
    if node.block != NOWHERE:
        return Tier.DEVICE
    return Tier.HOST if node.host != NOWHERE else Tier.DISK


def _expect_all(indices: list[int], used: int, tier: str) -> None:
    if len(set(indices)) != len(indices) or len(indices) != used:
        raise RuntimeError(f"tiers: blocks in the tree and blocks in use differ on {tier}")
