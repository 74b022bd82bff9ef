"""Retention leases: how long, and how firmly, the owner of a prefix asks for its blocks to be kept."""

import heapq
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Generic, NamedTuple

from worker.kv.accounts import Account, Accounts, ByTier, Outcome, Tally
from worker.kv.cover import Block, Cover, Lease, Term

MAX_PRIORITY = 100
DEFAULT_PRIORITY = 35


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
    budget      blocks under lease by tag and tier, each counted once, where it is held. A tag that asks for more gives
                up older leases of its own, whole, of no higher priority: first the lowest, then the oldest. (When the
                newest was refused instead, sessions that had gone quiet kept what those at work needed, and leases
                lowered the hit rate.) What does not fit even then is refused: the shallowest blocks are granted first,
                and nothing deeper than the first refusal, since a prefix is of no use without its beginning.

    Blocks are opaque keys. One without a lease costs nothing, except that one left below the default keeps its entry
    until it is used or forgotten. Every operation is O(log n) amortised for each block that it names or ends. Only the
    engine's thread calls; the clock is monotonic, in seconds.

    source    DESIGN 3.7
    """

    def __init__(
        self,
        clock: Callable[[], float],
        tier_of: Callable[[Block], int],
        *,
        budget: ByTier,
        default_priority: int = DEFAULT_PRIORITY,
        claims_per_block: int = 64,
        max_tags: int = 256,
    ) -> None:
        """tier_of says where a block is held; `moved` tells when that changes. The budget is that of each tag; max_tags
        have counters of their own.

        claims_per_block bounds how many leases of one tag are remembered on one block, the strongest. A prompt that is
        always in use is never released, and would collect the leases of every session that ever ended without a word.
        """
        if not 0 <= default_priority <= MAX_PRIORITY or claims_per_block < 1:
            raise ValueError("the default priority is out of range, or no lease may cover a block")
        self._clock, self._tier_of = clock, tier_of
        self._default = default_priority
        self._claims_per_block = claims_per_block
        self._accounts: Accounts[Block] = Accounts(budget, max_tags)
        self._covers: dict[Block, Cover[Block]] = {}
        self._moved: dict[Block, int] = {}  # blocks to report, with their priority at the last report
        self._event = 0
        # The blocks of a sequence are released together and mostly on the same terms: a timer is for all of them.
        self._rings: list[float] = []
        self._timers: dict[float, list[Cover[Block]]] = {}
        self._last_due = math.inf
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
        ranges = [part for part in ranges if part.blocks]
        touched = self._drop(self._session(tag, session))
        account = self._accounts.open(tag)
        lease: Lease[Block] = Lease(tag, session, self._event, max((part.priority for part in ranges), default=0))
        admitted, displaced = self._admit(account, lease, ranges)
        if session and any(lease.live):
            account.sessions[session] = lease
        self._accounts.close(tag)
        self._settle_all(touched + displaced + admitted)
        return Granted(len(set(admitted)), sum(len(part.blocks) for part in ranges) - len(admitted))

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
        self._accounts.close(tag)
        self._settle_all(dropped)
        return len(dropped)

    def drop_blocks(self, tag: str, blocks: Iterable[Block]) -> int:
        """The tag has no more use for these blocks: all its leases on them end. Returns how many blocks had one."""
        self._advance()
        covers = [cover for block in blocks if (cover := self._covers.get(block)) is not None]
        dropped = [cover for cover in covers if cover.of(tag)]
        for cover in dropped:
            for term in cover.of(tag):
                self._end(cover, term, "kept")
        self._accounts.close(tag)
        self._settle_all(dropped)
        return len(dropped)

    def moved(self, block: Block) -> None:
        """The block is held on another tier now, whose budget its leases need from here on: who has none left there
        gives up older leases, or this one."""
        self._advance()
        cover = self._covers.get(block)
        if cover is None or cover.tier == (tier := self._tier_of(block)):
            return
        before, cover.tier = cover.tier, tier
        touched = [cover]
        for tag, terms in cover.by_tag().items():
            account = self._accounts.by_tag[tag]
            for term in terms:
                account.transfer(term.lease, before, tier, block=term is terms[0])
            while account.is_over(tier):
                touched += self._make_way(account, cover, tag)
            self._accounts.close(tag)
        self._settle_all(touched)

    def forgotten(self, block: Block) -> None:
        """The block has left memory, which a move between tiers is not. Leases that covered it are broken, except those
        that have served a reuse."""
        self._advance()
        self._moved.pop(block, None)
        cover = self._covers.pop(block, None)
        if cover is None:
            return
        cover.due = math.inf
        for tag, terms in cover.by_tag().items():
            for term in terms:
                self._end(cover, term, "broken")
            self._accounts.close(tag)

    def tallies(self) -> Mapping[str, Tally]:
        """The counters by tag as of now, to be read and not kept; tags beyond max_tags share those of OTHER."""
        self._advance()
        return MappingProxyType(self._accounts.tallies)

    def check(self) -> None:
        """The books; RuntimeError when they do not balance. For tests, and when idle."""
        self._accounts.check()
        held: dict[Cover[Block], list[Term[Block]]] = {}
        for lease in [lease for account in self._accounts.by_tag.values() for lease in account.leases()]:
            claims = [(cover, term) for term in lease.terms for cover in term.covers if cover.holds(term)]
            if len(claims) != sum(lease.live):
                raise RuntimeError("leases: a block is not covered as the accounts say")
            for cover, term in claims:
                held.setdefault(cover, []).append(term)
        if not held.keys() <= set(self._covers.values()):
            raise RuntimeError("leases: an account leases a block that the book does not know")
        for cover in self._covers.values():
            self._check_cover(cover, held.get(cover, []))
        self._check_charges()
        if self._armed != sum(len(covers) for covers in self._timers.values()):
            raise RuntimeError("leases: the number of timers is wrong")

    def _check_charges(self) -> None:
        charged: dict[str, list[int]] = {tag: [0, 0, 0] for tag in self._accounts.by_tag}
        for cover in self._covers.values():
            if cover.tier != self._tier_of(cover.block):
                raise RuntimeError("leases: a block moved and the book was not told")
            for tag in cover.by_tag():
                charged.setdefault(tag, [0, 0, 0])[cover.tier] += 1
        if charged != {tag: account.leased for tag, account in self._accounts.by_tag.items()}:
            raise RuntimeError("leases: blocks are charged to other tiers than they are on")

    def _check_cover(self, cover: Cover[Block], held: list[Term[Block]]) -> None:
        on_it = [term for terms in cover.by_tag().values() for term in terms]
        if sorted(map(id, held)) != sorted(map(id, on_it)):
            raise RuntimeError("leases: a block is not covered as the accounts say")
        if cover.priority != cover.effective(self._default) or not (held or cover.priority < self._default):
            raise RuntimeError("leases: a priority is not settled, or an entry serves nothing")
        soonest = cover.soonest()
        if held and (soonest is None or min(held) < soonest):
            raise RuntimeError("leases: a lease on a block does not wait for its end")
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
    ) -> tuple[list[Cover[Block]], list[Cover[Block]]]:
        """Claims the blocks in order, up to the first one that finds no room. Returns what was claimed, and what older
        leases gave up for it; both are still to be settled."""
        admitted: list[Cover[Block]] = []
        displaced: list[Cover[Block]] = []
        for part in ranges:
            term = Term(lease, part.priority, part.ttl)
            lease.terms.append(term)
            for block in part.blocks:
                cover = self._covers.get(block) or Cover(block, self._tier_of(block), self._default)
                while not account.has_room(cover.tier) and not cover.of(lease.tag):
                    old = account.first_to_go(cover.tier, term)
                    if old is None:
                        account.tally.refused[cover.tier] += sum(len(each.blocks) for each in ranges) - len(admitted)
                        return admitted, displaced
                    displaced += self._drop(old, "displaced")
                self._covers[block] = cover
                self._claim(account, cover, term)
                admitted.append(cover)
        return admitted, displaced

    def _make_way(self, account: Account[Block], cover: Cover[Block], tag: str) -> list[Cover[Block]]:
        """For a block that has come to a tier where its tag has too many: an older lease goes, or else those on it.
        Returns the blocks that are still to be settled."""
        terms = cover.of(tag)
        old = account.first_to_go(cover.tier, max(terms, key=lambda term: term.strength))
        if old is not None:
            return self._drop(old, "displaced")
        for term in terms:
            self._end(cover, term, "displaced")
        return []

    def _claim(self, account: Account[Block], cover: Cover[Block], term: Term[Block]) -> None:
        own = cover.of(term.lease.tag)
        if any(one.lease is term.lease for one in own):
            return
        cover.add(term)
        term.covers.append(cover)
        account.charge(term.lease, cover.tier, block=not own)
        cover.released, cover.due = None, math.inf
        if term.priority < self._default:
            cover.lowered = self._event
        if len(own) >= self._claims_per_block:
            self._end(cover, min([*own, term], key=lambda one: one.strength), "kept")

    def _drop(self, lease: Lease[Block] | None, outcome: Outcome = "kept") -> list[Cover[Block]]:
        """Ends a lease; the blocks that it covered are still to be settled."""
        dropped: list[Cover[Block]] = []
        for term in lease.terms if lease is not None else ():
            for cover in term.covers:
                if cover.holds(term):
                    self._end(cover, term, outcome)
                    dropped.append(cover)
        return dropped

    def _end(self, cover: Cover[Block], term: Term[Block], outcome: Outcome) -> None:
        """One lease on one block ends. The block is still to be settled, so that its successor can take over first."""
        served = cover.used > term.lease.born
        cover.remove(term)
        last = not cover.of(term.lease.tag)
        account = self._accounts.by_tag[term.lease.tag]
        account.credit(term.lease, cover.tier, block=last, outcome="kept" if served else outcome)

    def _settle_all(self, covers: Iterable[Cover[Block]]) -> None:
        for cover in dict.fromkeys(covers):
            self._settle(cover)

    def _settle(self, cover: Cover[Block]) -> None:
        """Works out the priority of a block after a change, and lets go of the block when it is an ordinary one."""
        before, cover.priority = cover.priority, cover.effective(self._default)
        if cover.priority != before:
            self._moved.setdefault(cover.block, before)
        if cover.terms is None and cover.priority == self._default:
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
            self._end(cover, term, "kept")
            self._accounts.close(term.lease.tag)
            self._settle(cover)
            term = cover.soonest()
        self._arm(cover)

    def _arm(self, cover: Cover[Block]) -> None:
        """Sets the timer of a released block for the first of its leases that ends."""
        term = cover.soonest()
        if term is None or cover.released is None or math.isinf(term.ttl):
            return
        due = cover.released + term.ttl
        if due != self._last_due:
            self._last_due = due
        cover.due = self._last_due  # one number for all that are released together
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
