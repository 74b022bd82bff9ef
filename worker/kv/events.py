"""What KV memory tells the outside: blocks that came to a tier, and blocks that left one."""

from cacheplane.wire import MAX_HASHES, BlockRemoved, BlockStored, Event, Tier
from worker.kv.radix import Node


class EventLog:
    """Events in the order in which things happened; neighbours of one kind become one event.

    An event holds at most MAX_HASHES blocks, which is what its readers take: a long path that is lost is told
    in several.
    """

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._events: list[Event] = []

    def stored(self, node: Node, tier: Tier) -> None:
        parent = node.parent.digest or None if node.parent else None
        last = self._events[-1] if self._events else None
        follows = isinstance(last, BlockStored) and last.tier == tier and last.hashes[-1] == parent
        if isinstance(last, BlockStored) and follows and len(last.hashes) < MAX_HASHES:
            last.hashes.append(node.digest)
        else:
            self._events.append(BlockStored([node.digest], parent, self._block_size, tier))

    def removed(self, node: Node, tier: Tier, reason: str) -> None:
        last = self._events[-1] if self._events else None
        alike = isinstance(last, BlockRemoved) and (last.tier, last.reason) == (tier, reason)
        if isinstance(last, BlockRemoved) and alike and len(last.hashes) < MAX_HASHES:
            last.hashes.append(node.digest)
        else:
            self._events.append(BlockRemoved([node.digest], tier, reason))

    def take(self) -> list[Event]:
        """All since the last call."""
        events, self._events = self._events, []
        return events
