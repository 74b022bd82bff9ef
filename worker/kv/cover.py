"""Blocks under lease: which leases cover them, on which terms, and the priority that follows from them."""

import heapq
import math
from collections.abc import Hashable
from typing import Generic, TypeVar

Block = TypeVar("Block", bound=Hashable)


class Lease(Generic[Block]):
    """What one turn of a session was granted.

    born        the book's count of events when it was granted; a use that comes later is a reuse
    priority    the highest of its terms: where it stands when its tag has to give up leases
    terms       its ranges
    live        blocks that it still covers, by tier
    """

    __slots__ = ("born", "live", "priority", "session", "tag", "terms")

    def __init__(self, tag: str, session: str, born: int, priority: int) -> None:
        self.tag = tag
        self.session = session
        self.born = born
        self.priority = priority
        self.terms: list[Term[Block]] = []
        self.live = [0, 0, 0]


class Term(Generic[Block]):
    """One range of a lease, shared by all blocks of the range.

    priority    0-100
    ttl         seconds from the release of a block
    covers      where it holds, in the order in which it came to do so
    """

    __slots__ = ("covers", "lease", "priority", "ttl")

    def __init__(self, lease: Lease[Block], priority: int, ttl: float) -> None:
        self.lease = lease
        self.priority = priority
        self.ttl = ttl
        self.covers: dict[Cover[Block], None] = {}

    def __lt__(self, other: "Term[Block]") -> bool:
        """Which ends first. Of two that end together the lower one does, since the block falls from the higher."""
        return (self.ttl, self.priority) < (other.ttl, other.priority)

    @property
    def strength(self) -> tuple[int, float]:
        return self.priority, self.ttl


class Crowd(Generic[Block]):
    """The terms on blocks that several leases cover, as many as there may be.

    All leases on a block run from the same release, so that their order of expiry never changes: one queue by time to
    live serves every release.

    by_tag    the terms that hold, of each tag those that were granted first in front
    levels    how many there are at each priority; at most 101 keys, so the highest is found in O(1)
    """

    __slots__ = ("_queue", "by_tag", "levels")

    def __init__(self) -> None:
        self.by_tag: dict[str, list[Term[Block]]] = {}
        self.levels: dict[int, int] = {}
        self._queue: list[Term[Block]] = []

    def __len__(self) -> int:
        return sum(self.levels.values())

    def add(self, term: Term[Block]) -> None:
        self.by_tag.setdefault(term.lease.tag, []).append(term)
        self.levels[term.priority] = self.levels.get(term.priority, 0) + 1
        heapq.heappush(self._queue, term)

    def remove(self, term: Term[Block]) -> None:
        """The term stays in the queue until it comes up or the dead outnumber the living."""
        own = self.by_tag[term.lease.tag]
        own.remove(term)
        if not own:
            del self.by_tag[term.lease.tag]
        self.levels[term.priority] -= 1
        if not self.levels[term.priority]:
            del self.levels[term.priority]
        if len(self._queue) > 2 * len(self):
            self._queue = [one for own in self.by_tag.values() for one in own]
            heapq.heapify(self._queue)

    def copy(self) -> "Crowd[Block]":
        twin: Crowd[Block] = Crowd()
        twin.by_tag = {tag: list(terms) for tag, terms in self.by_tag.items()}
        twin.levels = dict(self.levels)
        twin._queue = list(self._queue)
        return twin

    def soonest(self) -> Term[Block] | None:
        """The term that ends first; None when none holds."""
        while self._queue and self._queue[0] not in self.by_tag.get(self._queue[0].lease.tag, ()):
            heapq.heappop(self._queue)
        return self._queue[0] if self._queue else None


class Cover(Generic[Block]):
    """Blocks that have fared alike: under the same leases, on one tier, used and released together.

    The blocks of a sequence do, so that one cover serves hundreds of them: an object for each block, with its place in
    each lease and among the timers, would be a third of all that a block costs beside its KV. It is made of blocks that
    a lease covers, or that one has left below the default.

    size        how many blocks it has; which ones, Coverage knows
    listed      these, and some that have left since
    tier        where they are held, which says whose budget they are charged to
    terms       none, the only one, or a crowd: nearly every block has one
    priority    their effective priority as last settled
    released    when the last sequence left them, in seconds of the book's clock; None while one uses them
    due         when the timer rings, in seconds of the book's clock; inf for never
    used        the book's count of events at their last use, 0 for none
    lowered     the same when a lease below the default was last granted on them
    beside      where a block went that was moved to another tier: the next one is likely to follow
    """

    __slots__ = ("beside", "due", "listed", "lowered", "priority", "released", "size", "terms", "tier", "used")

    def __init__(self, tier: int, priority: int) -> None:
        self.size = 0
        self.listed: list[Block] = []
        self.tier = tier
        self.terms: Term[Block] | Crowd[Block] | None = None
        self.priority = priority
        self.released: float | None = None
        self.due = math.inf
        self.used = 0
        self.lowered = 0
        self.beside: Cover[Block] | None = None

    def copy(self) -> "Cover[Block]":
        """Without any block yet, on the same terms."""
        twin: Cover[Block] = Cover(self.tier, self.priority)
        twin.terms = self.terms.copy() if isinstance(self.terms, Crowd) else self.terms
        twin.released, twin.due, twin.used, twin.lowered = self.released, self.due, self.used, self.lowered
        for term in twin.all_terms():
            term.covers[twin] = None
        return twin

    def alike(self, other: "Cover[Block]") -> bool:
        """Whether the blocks of both have fared alike, but for the tier."""
        mine = self.released, self.due, self.used, self.lowered, self.priority, self.by_tag()
        return mine == (other.released, other.due, other.used, other.lowered, other.priority, other.by_tag())

    def vanish(self) -> None:
        """Its last block has left."""
        for term in self.all_terms():
            del term.covers[self]
        self.terms = self.beside = None
        self.due = math.inf

    def add(self, term: Term[Block]) -> None:
        term.covers[self] = None
        if self.terms is None:
            self.terms = term
            return
        if isinstance(self.terms, Term):
            first, self.terms = self.terms, Crowd()
            self.terms.add(first)
        self.terms.add(term)

    def remove(self, term: Term[Block]) -> None:
        """The term does not hold any more."""
        del term.covers[self]
        if isinstance(self.terms, Crowd):
            self.terms.remove(term)
            if len(self.terms) == 1:
                self.terms = self.terms.soonest()
        else:
            self.terms = None

    def by_tag(self) -> dict[str, list[Term[Block]]]:
        """The terms that hold."""
        if isinstance(self.terms, Crowd):
            return {tag: list(terms) for tag, terms in self.terms.by_tag.items()}
        return {} if self.terms is None else {self.terms.lease.tag: [self.terms]}

    def all_terms(self) -> list[Term[Block]]:
        """The same in one list."""
        return [term for terms in self.by_tag().values() for term in terms]

    def of(self, tag: str) -> list[Term[Block]]:
        """Those of one tag."""
        if isinstance(self.terms, Crowd):
            return list(self.terms.by_tag.get(tag, ()))
        return [self.terms] if self.terms is not None and self.terms.lease.tag == tag else []

    def soonest(self) -> Term[Block] | None:
        """The term that ends first; None when no lease covers the blocks."""
        return self.terms.soonest() if isinstance(self.terms, Crowd) else self.terms

    def effective(self, default: int) -> int:
        """The highest lease, or what the blocks fell to. The end of a lease never raises them; a use speaks for the
        default, against every lease below it that was granted before."""
        if isinstance(self.terms, Crowd):
            held = max(self.terms.levels)
        else:
            held = self.terms.priority if self.terms is not None else min(self.priority, default)
        return max(held, default) if self.used > self.lowered else held
