"""What KV memory tells the outside: blocks that came to a tier, and blocks that left one."""

from cacheplane.wire import AllBlocksCleared, BlockRemoved, BlockStored, Event, Tier
from worker.kv.radix import Node


class EventLog:
    """Events in the order in which things happened; neighbours of one kind become one event."""

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._events: list[Event] = []

    def stored(self, node: Node, tier: Tier) -> None:
        parent = node.parent.digest or None if node.parent else None
        last = self._events[-1] if self._events else None
        if isinstance(last, BlockStored) and last.tier == tier and last.hashes[-1] == parent:
            last.hashes.append(node.digest)
        else:
            self._events.append(BlockStored([node.digest], parent, self._block_size, tier))

    def removed(self, node: Node, tier: Tier, reason: str) -> None:
        last = self._events[-1] if self._events else None
        if isinstance(last, BlockRemoved) and (last.tier, last.reason) == (tier, reason):
            last.hashes.append(node.digest)
        else:
            self._events.append(BlockRemoved([node.digest], tier, reason))

    def cleared(self) -> None:
        self._events.append(AllBlocksCleared())

    def take(self) -> list[Event]:
        """All since the last call."""
        events, self._events = self._events, []
        return events
