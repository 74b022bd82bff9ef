"""Timers of covers: which leases end next."""

import heapq
from collections.abc import Iterator
from typing import Generic

from worker.kv.cover import Block, Cover


class Timers(Generic[Block]):
    """Covers by the time when they are due. One that is due at another time meanwhile, or never, does not ring."""

    def __init__(self) -> None:
        self._rings: list[float] = []
        self._covers: dict[float, list[Cover[Block]]] = {}
        self._size = 0
        self._limit = 64

    def __len__(self) -> int:
        """How many entries there are, also of covers that do not ring any more."""
        return self._size

    def holds(self, cover: Cover[Block]) -> bool:
        """Whether the cover rings when it is due."""
        return cover in self._covers.get(cover.due, [])

    def set(self, cover: Cover[Block]) -> None:
        """O(log n) amortised."""
        if cover.due not in self._covers:
            heapq.heappush(self._rings, cover.due)
            self._covers[cover.due] = []
        self._covers[cover.due].append(cover)
        self._size += 1
        if self._size > self._limit:
            self._tidy()

    def rung(self, now: float) -> Iterator[Cover[Block]]:
        """Those that are due, in order; out of the timers."""
        while self._rings and self._rings[0] <= now:
            ring = heapq.heappop(self._rings)
            covers = self._covers.pop(ring)
            self._size -= len(covers)
            for cover in covers:
                if cover.due == ring:
                    yield cover

    def _tidy(self) -> None:
        """Leaves out the covers that were used or forgotten before they rang."""
        waiting = {due: dict.fromkeys(covers) for due, covers in self._covers.items()}
        kept = {due: [cover for cover in covers if cover.due == due] for due, covers in waiting.items()}
        self._covers = {due: covers for due, covers in kept.items() if covers}
        self._rings = sorted(self._covers)
        self._size = sum(len(covers) for covers in self._covers.values())
        self._limit = 2 * self._size + 64
