"""The blocks that can leave a tier to make room, and which of them goes next."""

from collections.abc import Iterable

from worker.kv.archive import Archive
from worker.kv.eviction import EvictionQueue, Rank
from worker.kv.host import HostState, HostTier
from worker.kv.leases import LeaseBook
from worker.kv.radix import NOWHERE, Node


class Candidates:
    """Leaves of each tier that no sequence stands on or below; by effective priority, and of equals by recency.

    A node is to be offered whenever it may have become one; who is none is ignored. The disk knows its own leaves
    and is told of priorities alone.
    """

    def __init__(self, host: HostTier, archive: Archive, leases: "LeaseBook[Node]") -> None:
        self._host, self._archive, self._leases = host, archive, leases
        self._on_device = EvictionQueue(_leaves_device, self._rank)
        self._on_host = EvictionQueue(self._leaves_host, self._rank)

    def offer(self, node: Node) -> None:
        self._on_device.offer(node)
        self._on_host.offer(node)

    def reoffer(self) -> None:
        """Offers the blocks anew whose priority has changed: at their old place in a queue they are not seen."""
        for node in self._leases.due():
            self.offer(node)
            self._archive.rank(node, self._leases.priority(node))

    def give_up(self, node: Node) -> None:
        """Nobody comes back to the node: of its priority it goes first."""
        node.last_used = 0
        self.offer(node)
        self._archive.give_up(node)

    def take_from_device(self) -> Node | None:
        """Who leaves the device next; None when nobody can."""
        self.reoffer()
        return self._on_device.take()

    def take_from_host(self, most: int) -> Node | None:
        """The same on host, of those whose priority is at most that."""
        self.reoffer()
        return self._on_host.take(most)

    def check(self, nodes: Iterable[Node]) -> None:
        """RuntimeError when one of all nodes can go and does not wait to, or waits at a wrong place."""
        self._archive.check(self._leases.priority)
        for node in nodes:
            if _leaves_device(node) and not self._on_device.waits(node):
                raise RuntimeError("tiers: a leaf on the device is not offered for eviction")
            if self._leaves_host(node) and not self._on_host.waits(node):
                raise RuntimeError("tiers: a leaf on host is not offered for eviction")

    def _rank(self, node: Node) -> Rank:
        return self._leases.priority(node), node.last_used

    def _leaves_host(self, node: Node) -> bool:
        return (
            node.host != NOWHERE
            and not (node.users or node.host_children or node.device_children)
            and self._host.state(node.host) == HostState.READY
        )


def _leaves_device(node: Node) -> bool:
    return node.block != NOWHERE and not (node.users or node.device_children)
