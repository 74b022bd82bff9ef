"""The disk tier's books: which blocks are on disk, and which of them goes first."""

import heapq
from typing import Final, TypeAlias

from worker.kv.ranges import MAX_PRIORITY

_NEVER: Final = 0
_Candidate: TypeAlias = tuple[int, int, bytes]  # priority, last use, digest


class Place:
    """Where one block stands: the block before it, how many after it are here too, its effective priority, and when it
    was last used."""

    __slots__ = ("children", "parent", "priority", "used")

    def __init__(self, parent: bytes | None, children: int, priority: int) -> None:
        self.parent = parent
        self.children = children
        self.priority = priority
        self.used = _NEVER


class Shelf:
    """Blocks by digest; the first to go is that of the lowest priority among those without children here, and of equals
    the least recently used.

    Leaves first: a path is written and read from its root, so roots would go before what hangs from them, and every
    block after a root is lost with it.

    A child may come before its parent: what leaves memory leaf first arrives here leaf first. Candidates wait in a heap
    with lazy deletion, so that all operations cost O(log n) amortised. No lock: its owner has one.
    """

    def __init__(self) -> None:
        self._places: dict[bytes, Place] = {}
        self._awaited: dict[bytes, int] = {}  # parents that are not here, with the number of their children that are
        self._candidates: list[_Candidate] = []
        self._limit = 64  # of these, before those that are not true any more are dropped
        self._clock = 0

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._places

    def get(self, digest: bytes) -> Place | None:
        """The block's place, which is another one each time that the block is added."""
        return self._places.get(digest)

    def add(self, digest: bytes, parent: bytes | None, priority: int) -> None:
        """A new block, as the most recently used; RuntimeError when it is here already."""
        if digest in self._places:
            raise RuntimeError("shelf: a block was added twice")
        self._places[digest] = Place(parent, self._awaited.pop(digest, 0), priority)
        self._count(parent, 1)
        self.touch(digest)

    def touch(self, digest: bytes) -> None:
        """The block becomes the most recently used."""
        self._clock += 1
        self._places[digest].used = self._clock
        self._offer(digest)

    def rank(self, digest: bytes, priority: int) -> None:
        """The block's priority is another one now."""
        self._places[digest].priority = priority
        self._offer(digest)

    def give_up(self, digest: bytes) -> None:
        """Nobody comes back to the block: it goes first of those of its priority."""
        self._places[digest].used = _NEVER
        self._offer(digest)

    def remove(self, digest: bytes) -> None:
        """KeyError when the block is not here."""
        place = self._places.pop(digest)
        if place.children:
            self._awaited[digest] = place.children
        self._count(place.parent, -1)

    def awaits(self, digest: bytes) -> bool:
        """Whether blocks are here that come after this one, which is not."""
        return digest in self._awaited

    def evict(self, spare: bytes | None, most: int = MAX_PRIORITY) -> bytes | None:
        """Removes the block that goes first and returns its digest, or None when there is none.

        spare   a block that stays: the parent of the one that needs the room, which would be lost with it
        most    the highest priority that may go
        """
        kept: list[_Candidate] = []
        victim = None
        while victim is None and self._candidates and self._candidates[0][0] <= most:
            candidate = heapq.heappop(self._candidates)
            if candidate[-1] == spare:
                kept.append(candidate)
            elif self._current(candidate):
                victim = candidate[-1]
                self.remove(victim)
        for candidate in kept:
            heapq.heappush(self._candidates, candidate)
        return victim

    def check(self) -> None:
        """The books; RuntimeError when they do not balance."""
        counted: dict[bytes, int] = {}
        for place in self._places.values():
            if place.parent is not None:
                counted[place.parent] = counted.get(place.parent, 0) + 1
        kept = {digest: place.children for digest, place in self._places.items() if place.children}
        if counted != kept | self._awaited or kept.keys() & self._awaited.keys():
            raise RuntimeError("shelf: a child count is wrong")
        for digest, place in self._places.items():
            if not place.children and (place.priority, place.used, digest) not in self._candidates:
                raise RuntimeError("shelf: a block without children is not offered for eviction")

    def _count(self, parent: bytes | None, change: int) -> None:
        """A child of parent came or went."""
        if parent is None:
            return
        if place := self._places.get(parent):
            place.children += change
            self._offer(parent)
        elif left := self._awaited.pop(parent, 0) + change:
            self._awaited[parent] = left

    def _offer(self, digest: bytes) -> None:
        place = self._places[digest]
        if place.children:
            return
        heapq.heappush(self._candidates, (place.priority, place.used, digest))
        if len(self._candidates) > self._limit:
            self._candidates = [candidate for candidate in self._candidates if self._current(candidate)]
            heapq.heapify(self._candidates)
            self._limit = 2 * len(self._candidates) + 64

    def _current(self, candidate: _Candidate) -> bool:
        *rank, digest = candidate
        place = self._places.get(digest)
        return place is not None and [place.priority, place.used] == rank and not place.children
