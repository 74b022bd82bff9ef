"""A block under lease: which leases cover it, on which terms, and the priority that follows from them."""

import heapq
import math
from collections.abc import Hashable
from typing import Generic, TypeVar

Block = TypeVar("Block", bound=Hashable)


class Lease(Generic[Block]):
    """What one turn of a session was granted.

    born      the book's count of events when it was granted; a use that comes later is a reuse
    claims    the blocks that it still covers, each with its terms; what is gone from here is gone from all the books
    """

    __slots__ = ("born", "claims", "session", "tag")

    def __init__(self, tag: str, session: str, born: int) -> None:
        self.tag = tag
        self.session = session
        self.born = born
        self.claims: dict[Cover[Block], Term[Block]] = {}


class Term(Generic[Block]):
    """One range of a lease, shared by all blocks of the range.

    priority    0-100
    ttl         seconds from the release of a block
    """

    __slots__ = ("lease", "priority", "ttl")

    def __init__(self, lease: Lease[Block], priority: int, ttl: float) -> None:
        self.lease = lease
        self.priority = priority
        self.ttl = ttl

    def __lt__(self, other: "Term[Block]") -> bool:
        """Which ends first. Of two that end together the lower one does, since the block falls from the higher."""
        return (self.ttl, self.priority) < (other.ttl, other.priority)

    @property
    def strength(self) -> tuple[int, float]:
        return self.priority, self.ttl

    def holds(self, cover: "Cover[Block]") -> bool:
        """Whether this lease still covers that block."""
        return self.lease.claims.get(cover) is self


class Cover(Generic[Block]):
    """One block that the book knows, because a lease covers it or because one has left it below the default.

    All leases on a block run from the same release, so that their order of expiry never changes: one queue by time to
    live serves every release, and one timer a block serves all its leases, however many sessions share the block.

    priority    its effective priority as last settled
    released    when the last sequence left it, in seconds of the book's clock; None while one uses it
    due         when its timer rings, in seconds of the book's clock; inf for never
    used        the book's count of events at its last use, 0 for none
    lowered     the same when a lease below the default was last granted on it
    levels      how many leases cover it at each priority; at most 101 keys, so the highest is found in O(1)
    """

    __slots__ = ("_queue", "block", "due", "levels", "lowered", "priority", "released", "used")

    def __init__(self, block: Block, priority: int) -> None:
        self.block = block
        self.priority = priority
        self.released: float | None = None
        self.due = math.inf
        self.used = 0
        self.lowered = 0
        self.levels: dict[int, int] = {}
        self._queue: list[Term[Block]] = []

    def add(self, term: Term[Block]) -> None:
        self.levels[term.priority] = self.levels.get(term.priority, 0) + 1
        heapq.heappush(self._queue, term)

    def remove(self, term: Term[Block]) -> None:
        """The term does not hold any more. It stays in the queue until it comes up or the dead outnumber the living."""
        self.levels[term.priority] -= 1
        if not self.levels[term.priority]:
            del self.levels[term.priority]
        if len(self._queue) > 2 * sum(self.levels.values()):
            self._queue = self.terms()
            heapq.heapify(self._queue)

    def terms(self) -> list[Term[Block]]:
        """The terms that hold, in no order."""
        return [term for term in self._queue if term.holds(self)]

    def soonest(self) -> Term[Block] | None:
        """The term that ends first; None when no lease covers the block."""
        while self._queue and not self._queue[0].holds(self):
            heapq.heappop(self._queue)
        return self._queue[0] if self._queue else None

    def effective(self, default: int) -> int:
        """The highest lease, or what the block fell to. The end of a lease never raises it; a use speaks for the
        default, against every lease below it that was granted before."""
        held = max(self.levels) if self.levels else min(self.priority, default)
        return max(held, default) if self.used > self.lowered else held
