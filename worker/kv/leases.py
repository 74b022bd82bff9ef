"""Retention leases: how long, and how firmly, the owner of a prefix asks for its blocks to be kept."""

import heapq
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Generic, NamedTuple

from worker.kv.accounts import Account, Accounts, Tally
from worker.kv.cover import Block, Cover, Lease, Term

MAX_PRIORITY = 100
DEFAULT_PRIORITY = 35
NO_BUDGETS: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class LeaseRange(Generic[Block]):
    """A part of what a lease asks for: blocks from the shallowest to the deepest, on the same terms.

    priority    0-100
    ttl         seconds from the release of each block; inf until it is dropped, superseded or forgotten
    errors      ValueError
    """

    blocks: Sequence[Block]
    priority: int
    ttl: float

    def __post_init__(self) -> None:
        if not 0 <= self.priority <= MAX_PRIORITY:
            raise ValueError(f"the priority of a lease is 0 to {MAX_PRIORITY}, not {self.priority}")
        if not self.ttl >= 0:  # not (ttl < 0): that would let NaN through
            raise ValueError(f"the time to live of a lease is 0 seconds or more, not {self.ttl}")


class Granted(NamedTuple):
    """How many blocks were granted, and how many were refused for want of budget."""

    granted: int
    refused: int


class LeaseBook(Generic[Block]):
    """Who asked for which blocks to be kept, and the priority of each block that follows. It orders eviction, and
    never forbids it: a leased block may be forgotten at any time, and is then counted as broken.

    life        A lease covers a block while the block is in use and for ttl seconds after each release of it.
    priority    The highest lease that covers the block now; the last writer does not win. When the last one ends, by
                whatever end, the block falls to the default from above, and stays where it is when below.
    use         speaks for the default: a block that is used is not below it until the next lease that is. Otherwise
                one tag could bury a prefix that others keep coming back to.
    session     The next lease of the same tag and session takes the place of the last. "" is no session: such leases
                stand beside each other, and end by time or by drop_blocks.
    budget      blocks under lease by tag, each counted once. The shallowest are granted first, and nothing deeper than
                the first refusal: a prefix is of no use without its beginning.

    Blocks are opaque keys. One without a lease costs nothing, except that one left below the default keeps its entry
    until it is used or forgotten. Every operation is O(log n) amortised for each block that it names or ends. Only the
    engine's thread calls; the clock is monotonic, in seconds.

    source    DESIGN 3.7
    """

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        budget_blocks: int,
        budgets: Mapping[str, int] = NO_BUDGETS,
        default_priority: int = DEFAULT_PRIORITY,
        claims_per_block: int = 64,
        max_tags: int = 256,
    ) -> None:
        """budget_blocks holds for each tag that budgets does not name; max_tags have counters of their own.

        claims_per_block bounds how many leases of one tag are remembered on one block, the strongest. A prompt that is
        always in use is never released, and would collect the leases of every session that ever ended without a word.
        """
        if not 0 <= default_priority <= MAX_PRIORITY or claims_per_block < 1:
            raise ValueError("the default priority is out of range, or no lease may cover a block")
        self._clock = clock
        self._default = default_priority
        self._claims_per_block = claims_per_block
        self._accounts: Accounts[Block] = Accounts(budget_blocks, budgets, max_tags)
        self._covers: dict[Block, Cover[Block]] = {}
        self._moved: dict[Block, int] = {}  # blocks to report, with their priority at the last report
        self._event = 0
        # The blocks of a sequence are released together and mostly on the same terms: a timer is for all of them.
        self._rings: list[float] = []
        self._timers: dict[float, list[Cover[Block]]] = {}
        self._armed = 0

    def __len__(self) -> int:
        """How many blocks the book knows: those under lease and those that a lease has left below the default."""
        return len(self._covers)

    def grant(self, tag: str, session: str, ranges: Iterable[LeaseRange[Block]]) -> Granted:
        """Takes a lease, in place of the last one of this tag and session. A block belongs to the first range that
        names it.

        before    The blocks are in use by the sequence that asks, and `used` was told of those that it found. They
                  count as in use until `released`.
        after     `due` names every block whose priority has changed, also those that only the last lease covered.
        """
        self._advance()
        ranges = list(ranges)
        touched = self._drop(self._session(tag, session))
        account = self._accounts.open(tag)
        lease: Lease[Block] = Lease(tag, session, self._event)
        admitted = list(self._admit(account, lease, ranges))
        refused = sum(len(part.blocks) for part in ranges) - len(admitted)
        account.tally.refused += refused
        if session and lease.claims:
            account.sessions[session] = lease
        self._accounts.close(tag)
        self._settle_all(touched + admitted)
        return Granted(len(set(admitted)), refused)

    def priority(self, block: Block) -> int:
        """The effective priority of a block now, 0-100; the default for one that no lease has touched."""
        self._advance()
        return self._priority(block)

    def used(self, blocks: Iterable[Block]) -> None:
        """A running sequence begins to use these blocks. Their leases can't expire until they are released."""
        self._advance()
        for block in blocks:
            cover = self._covers.get(block)
            if cover is not None:
                cover.released, cover.due = None, math.inf
                cover.used = self._event
                self._settle(cover)

    def released(self, blocks: Iterable[Block]) -> None:
        """No running sequence uses these blocks any more: the time of their leases runs from now."""
        now = self._advance()
        for block in blocks:
            cover = self._covers.get(block)
            if cover is not None and cover.released is None:
                cover.released = now
                self._arm(cover)

    def due(self) -> list[Block]:
        """The blocks whose effective priority differs from what it was at the last call, to be offered to eviction
        anew. Forgotten blocks are not among them."""
        self._advance()
        moved, self._moved = self._moved, {}
        return [block for block, before in moved.items() if self._priority(block) != before]

    def drop_session(self, tag: str, session: str) -> int:
        """The session has ended: its lease ends. Returns how many blocks it covered."""
        self._advance()
        dropped = self._drop(self._session(tag, session))
        self._settle_all(dropped)
        return len(dropped)

    def drop_blocks(self, tag: str, blocks: Iterable[Block]) -> int:
        """The tag has no more use for these blocks: all its leases on them end. Returns how many blocks had one."""
        self._advance()
        dropped: list[Cover[Block]] = []
        for block in blocks:
            account, cover = self._accounts.by_tag.get(tag), self._covers.get(block)
            if account is None or cover is None or cover not in account.covers:
                continue
            for term in list(account.covers[cover]):
                self._end(cover, term)
            dropped.append(cover)
        self._settle_all(dropped)
        return len(dropped)

    def forgotten(self, block: Block) -> None:
        """The block has left memory, which a move between tiers is not. Leases that covered it are broken, except those
        that have served a reuse."""
        self._advance()
        self._moved.pop(block, None)
        cover = self._covers.pop(block, None)
        if cover is None:
            return
        cover.due = math.inf
        for term in cover.terms():
            self._end(cover, term, kept=cover.used > term.lease.born)

    def tallies(self) -> Mapping[str, Tally]:
        """The counters by tag as of now, to be read and not kept; tags beyond max_tags share those of OTHER."""
        self._advance()
        return MappingProxyType(self._accounts.tallies)

    def check(self) -> None:
        """The books; RuntimeError when they do not balance. For tests, and when idle."""
        self._accounts.check()
        held: dict[Cover[Block], list[Term[Block]]] = {}
        for account in self._accounts.by_tag.values():
            for cover, terms in account.covers.items():
                held.setdefault(cover, []).extend(terms)
        if not held.keys() <= set(self._covers.values()):
            raise RuntimeError("leases: an account leases a block that the book does not know")
        for cover in self._covers.values():
            self._check_cover(cover, held.get(cover, []))
        if self._armed != sum(len(covers) for covers in self._timers.values()):
            raise RuntimeError("leases: the number of timers is wrong")

    def _check_cover(self, cover: Cover[Block], held: list[Term[Block]]) -> None:
        priorities = [term.priority for term in held]
        if {level: priorities.count(level) for level in priorities} != cover.levels:
            raise RuntimeError("leases: a block is not covered as the accounts say")
        if sorted(map(id, held)) != sorted(map(id, cover.terms())):
            raise RuntimeError("leases: a lease on a block does not wait for its end")
        if cover.priority != cover.effective(self._default) or not (held or cover.priority < self._default):
            raise RuntimeError("leases: a priority is not settled, or an entry serves nothing")
        soonest = cover.soonest()
        if soonest is None or cover.released is None or math.isinf(soonest.ttl):
            return
        if cover.due > cover.released + soonest.ttl or cover not in self._timers.get(cover.due, []):
            raise RuntimeError("leases: no timer rings when a lease ends")

    def _priority(self, block: Block) -> int:
        cover = self._covers.get(block)
        return self._default if cover is None else cover.priority

    def _session(self, tag: str, session: str) -> Lease[Block] | None:
        account = self._accounts.by_tag.get(tag)
        return None if account is None else account.sessions.get(session)

    def _admit(
        self, account: Account[Block], lease: Lease[Block], ranges: Sequence[LeaseRange[Block]]
    ) -> Iterable[Cover[Block]]:
        """Claims the blocks in order, each as it is asked for, up to the first one that the budget refuses."""
        for part in ranges:
            term = Term(lease, part.priority, part.ttl)
            for block in part.blocks:
                cover = self._covers.get(block)
                if not account.admits(cover):
                    return
                if cover is None:
                    cover = self._covers[block] = Cover(block, self._default)
                if cover not in lease.claims:
                    self._claim(account, cover, term)
                yield cover

    def _claim(self, account: Account[Block], cover: Cover[Block], term: Term[Block]) -> None:
        account.add(cover, term)
        cover.add(term)
        cover.released, cover.due = None, math.inf
        if term.priority < self._default:
            cover.lowered = self._event
        own = account.covers[cover]
        if len(own) > self._claims_per_block:
            self._end(cover, min(own, key=lambda one: one.strength))

    def _drop(self, lease: Lease[Block] | None) -> list[Cover[Block]]:
        """Ends a lease; the blocks that it covered are still to be settled."""
        claims = [] if lease is None else list(lease.claims.items())
        for cover, term in claims:
            self._end(cover, term)
        return [cover for cover, _ in claims]

    def _end(self, cover: Cover[Block], term: Term[Block], *, kept: bool = True) -> None:
        """One lease on one block ends. The block is still to be settled, so that its successor can take over first."""
        tag = term.lease.tag
        self._accounts.by_tag[tag].remove(cover, term, kept=kept)
        self._accounts.close(tag)
        cover.remove(term)

    def _settle_all(self, covers: Iterable[Cover[Block]]) -> None:
        for cover in dict.fromkeys(covers):
            self._settle(cover)

    def _settle(self, cover: Cover[Block]) -> None:
        """Works out the priority of a block after a change, and lets go of the block when it is an ordinary one."""
        before, cover.priority = cover.priority, cover.effective(self._default)
        if cover.priority != before:
            self._moved.setdefault(cover.block, before)
        if not cover.levels and cover.priority == self._default:
            cover.due = math.inf
            del self._covers[cover.block]

    def _advance(self) -> float:
        """Counts an event, and ends what has expired until now; returns now."""
        self._event += 1
        now = self._clock()
        while self._rings and self._rings[0] <= now:
            ring = heapq.heappop(self._rings)
            covers = self._timers.pop(ring)
            self._armed -= len(covers)
            for cover in covers:
                if cover.due == ring:
                    self._expire(cover, now)
        return now

    def _expire(self, cover: Cover[Block], now: float) -> None:
        """Ends the leases on a block whose time is over, one by one: what the block falls to is told by the last."""
        cover.due = math.inf
        assert cover.released is not None
        term = cover.soonest()
        while term is not None and cover.released + term.ttl <= now:
            self._end(cover, term)
            self._settle(cover)
            term = cover.soonest()
        self._arm(cover)

    def _arm(self, cover: Cover[Block]) -> None:
        """Sets the timer of a released block for the first of its leases that ends."""
        term = cover.soonest()
        if term is None or cover.released is None or math.isinf(term.ttl):
            return
        cover.due = cover.released + term.ttl
        if cover.due not in self._timers:
            heapq.heappush(self._rings, cover.due)
            self._timers[cover.due] = []
        self._timers[cover.due].append(cover)
        self._armed += 1
        if self._armed > 2 * len(self._covers) + 64:
            self._rewind()

    def _rewind(self) -> None:
        """Leaves out the timers of blocks that were used or forgotten before they rang."""
        self._timers = {}
        for cover in self._covers.values():
            if cover.due < math.inf:
                self._timers.setdefault(cover.due, []).append(cover)
        self._rings = sorted(self._timers)
        self._armed = sum(len(covers) for covers in self._timers.values())
