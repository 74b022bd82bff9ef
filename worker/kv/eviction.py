"""Who goes next from one tier."""

import heapq
from collections.abc import Callable

from worker.kv.radix import Node
from worker.kv.ranges import MAX_PRIORITY

Rank = tuple[int, int]  # effective priority, time of last use


class EvictionQueue:
    """Candidates of one tier, lowest priority first, and of those the least recently used.

    Deletion is lazy: an entry that is not true any more is dropped when it comes up. A candidate must be offered again
    whenever it may have become one, or its rank has changed; each offer costs O(log n) amortised.
    """

    def __init__(self, evictable: Callable[[Node], bool], rank: Callable[[Node], Rank]) -> None:
        self._evictable = evictable
        self._rank = rank
        self._heap: list[tuple[Rank, int, Node]] = []
        self._offers = 0
        self._limit = 64

    def offer(self, node: Node) -> None:
        """Considers a node; one that can't go now is ignored."""
        if not self._evictable(node):
            return
        self._offers += 1
        heapq.heappush(self._heap, (self._rank(node), self._offers, node))
        if len(self._heap) > self._limit:
            self._heap = [entry for entry in self._heap if self._true(entry)]
            heapq.heapify(self._heap)
            self._limit = 2 * len(self._heap) + 64

    def take(self, most: int = MAX_PRIORITY) -> Node | None:
        """The node that goes next, out of the queue; None when nobody can whose priority is at most that."""
        while self._heap and self._heap[0][0][0] <= most:
            entry = heapq.heappop(self._heap)
            if self._true(entry):
                return entry[2]
        return None

    def waits(self, node: Node) -> bool:
        """Whether the node waits here with its present rank; for checks, O(n)."""
        return any(entry[2] is node and entry[0] == self._rank(node) for entry in self._heap)

    def _true(self, entry: tuple[Rank, int, Node]) -> bool:
        return self._evictable(entry[2]) and entry[0] == self._rank(entry[2])
