"""Which nodes the disk tier has, or is writing, and what it says of them."""

from collections.abc import Callable
from concurrent.futures import Future

from cacheplane.wire import Tier
from worker.kv.disk import DiskTier
from worker.kv.events import EventLog
from worker.kv.moves import Moves
from worker.kv.radix import Node, OnDisk, RadixTree
from worker.kv.record import DiskRecord, record_of
from worker.kv.shape import Block


class Archive:
    """The tree's side of the disk tier.

    settle   told of each node whose copy on disk is gone, or did not come about

    Only the engine's thread calls; nothing but `wait` waits for the disk.
    """

    def __init__(self, disk: DiskTier, events: EventLog, moves: Moves, settle: Callable[[Node], None]) -> None:
        self._disk, self._events, self._moves, self._settle = disk, events, moves, settle
        self._nodes: dict[bytes, Node] = {}  # those that are being written too
        self._writing: list[tuple[Node, Future[bool]]] = []

    @property
    def writing(self) -> int:
        """Blocks on their way to disk, as of the last `poll`."""
        return len(self._writing)

    def take(self, node: Node, block: Block, priority: int) -> bool:
        """Hands a copy of the node's KV to the disk tier, which owns it when this returns.

        False when it takes none now, or when another path that was made to have the same digest is there already.
        """
        if node.digest in self._nodes:
            return False
        future = self._disk.store(record_of(node), block, priority)
        if future.done() and not future.result():
            return False
        node.disk = OnDisk.WRITING
        self._nodes[node.digest] = node
        self._writing.append((node, future))
        return True

    def adopt(self, tree: RadixTree, records: list[DiskRecord]) -> None:
        """Takes over what an earlier run left on disk; records come parents first."""
        nodes: dict[bytes | None, Node] = {None: tree.root}
        for record in records:
            node = tree.insert(nodes[record.parent], record.edge, record.digest)
            tree.touch([node])
            nodes[record.digest] = node
            self._nodes[node.digest] = node
            self._written(node, stored=True)

    def poll(self) -> None:
        """Takes note of what was written, and of what left."""
        dropped = self._disk.take_dropped()  # first: of a block that is stored and dropped meanwhile we hear next time
        still: list[tuple[Node, Future[bool]]] = []
        for node, future in self._writing:
            if not future.done():
                still.append((node, future))
            elif node.disk == OnDisk.WRITING:
                self._written(node, stored=future.result())
        self._writing = still
        for digest in dropped:
            self._dropped(digest)

    def rank(self, node: Node, priority: int) -> None:
        """The node's effective priority is another one now."""
        if node.disk != OnDisk.ABSENT:
            self._disk.rank(node.digest, priority)

    def give_up(self, node: Node) -> None:
        """Nobody comes back to the node."""
        if node.disk != OnDisk.ABSENT:
            self._disk.give_up(node.digest)

    def check(self, priority: Callable[[Node], int]) -> None:
        """RuntimeError when the disk was not told of a priority."""
        for node in self._nodes.values():
            if self._disk.priority(node.digest) not in (None, priority(node)):
                raise RuntimeError("tiers: the disk goes by a priority that is no longer true")

    def wait(self) -> bool:
        """Waits until the block that was handed over first is written; False when none is on its way."""
        if self._writing:
            self._writing[0][1].result()
        return bool(self._writing)

    def forget(self, node: Node, reason: str) -> None:
        """The node is to be on disk no longer, if it ever was."""
        if node.disk == OnDisk.PRESENT:
            self._events.removed(node, Tier.DISK, reason)
        if node.disk != OnDisk.ABSENT:
            del self._nodes[node.digest]
            self._disk.remove(node.digest)
            node.disk = OnDisk.ABSENT

    def _written(self, node: Node, *, stored: bool) -> None:
        node.disk = OnDisk.PRESENT if stored else OnDisk.ABSENT
        if stored:
            self._moves.written += 1
            self._events.stored(node, Tier.DISK)
        else:
            del self._nodes[node.digest]
            self._settle(node)

    def _dropped(self, digest: bytes) -> None:
        node = self._nodes.pop(digest, None)
        if node is not None:
            node.disk = OnDisk.ABSENT
            self._events.removed(node, Tier.DISK, "evicted")
            self._settle(node)
