"""Retention leases: how long, and how firmly, the owner of a prefix asks for its blocks to be kept."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Generic

from worker.kv.accounts import Account, Accounts, ByTier, Outcome, Tally
from worker.kv.cover import Block, Cover, Lease, Term
from worker.kv.coverage import Coverage
from worker.kv.ranges import DEFAULT_PRIORITY, MAX_PRIORITY, Granted, LeaseRange, apart
from worker.kv.timers import Timers


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
    until it is used or forgotten. Blocks that fare alike share all that is known of them, which costs 65 bytes for each
    however many leases they are under. Every operation is O(log n) amortised for each block that it names or ends,
    a move O(n) in the leases on the block. Only the engine's thread calls; the clock is monotonic, in seconds.
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
        self._timers: Timers[Block] = Timers()
        self._coverage: Coverage[Block] = Coverage(self._timers)
        self._moved: dict[Block, int] = {}  # blocks to report, with their priority at the last report
        self._event = 0

    def __len__(self) -> int:
        """How many blocks the book knows: those under lease and those that a lease has left below the default."""
        return len(self._coverage)

    def grant(self, tag: str, session: str, ranges: Iterable[LeaseRange[Block]]) -> Granted:
        """Takes a lease, in place of the last one of this tag and session. A block belongs to the first range that
        names it.

        before    The blocks are in use by the sequence that asks, and `used` was told of those that it found. They
                  count as in use until `released`.
        after     `due` names every block whose priority has changed, also those that only the last lease covered.
        """
        self._advance()
        ranges = apart(ranges)
        touched = self._drop(self._session(tag, session))
        account = self._accounts.open(tag)
        lease: Lease[Block] = Lease(tag, session, self._event, max((part.priority for part in ranges), default=0))
        granted = refused = 0
        for part in ranges:
            count, changed = self._admit(account, Term(lease, part.priority, part.ttl), part.blocks)
            granted, touched = granted + count, touched + changed
            if count < len(part.blocks):
                refused = sum(len(part.blocks) for part in ranges) - granted
                account.tally.refused[self._tier_of(part.blocks[count])] += refused
                break
        if session and any(lease.live):
            account.sessions[session] = lease
        self._accounts.close(tag)
        self._settle_all(touched)
        return Granted(granted, refused)

    def priority(self, block: Block) -> int:
        """The effective priority of a block now, 0-100; the default for one that no lease has touched."""
        self._advance()
        return self._priority(block)

    def used(self, blocks: Iterable[Block]) -> None:
        """A running sequence begins to use these blocks. Their leases can't expire until they are released."""
        self._advance()
        for cover, part in self._coverage.groups(blocks):
            used = self._coverage.split(cover, part)
            used.released, used.due = None, math.inf
            used.used = self._event
            self._settle(used)

    def released(self, blocks: Iterable[Block]) -> None:
        """No running sequence uses these blocks any more: the time of their leases runs from now."""
        now = self._advance()
        for cover, part in self._coverage.groups(blocks):
            if cover.released is None:
                released = self._coverage.split(cover, part)
                released.released = now
                self._arm(released)

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
        count = sum(cover.size for cover in dropped)
        self._accounts.close(tag)
        self._settle_all(dropped)
        return count

    def drop_blocks(self, tag: str, blocks: Iterable[Block]) -> int:
        """The tag has no more use for these blocks: all its leases on them end. Returns how many blocks had one."""
        self._advance()
        groups = [(cover, part) for cover, part in self._coverage.groups(blocks) if cover.of(tag)]
        for cover, part in groups:
            dropped = self._coverage.split(cover, part)
            for term in dropped.of(tag):
                self._end(dropped, term, "kept")
            self._settle(dropped)
        self._accounts.close(tag)
        return sum(len(part) for _, part in groups)

    def moved(self, block: Block) -> None:
        """The block is held on another tier now, whose budget its leases need from here on: who has none left there
        gives up older leases, or this one."""
        self._advance()
        cover = self._coverage.of(block)
        if cover is None or cover.tier == (tier := self._tier_of(block)):
            return
        before, cover = cover.tier, self._coverage.move(block, tier)
        touched: list[Cover[Block]] = []
        for tag, terms in cover.by_tag().items():
            account = self._accounts.by_tag[tag]
            for term in terms:
                account.transfer(term.lease, before, tier, block=term is terms[0])
            while account.is_over(tier):
                touched += self._make_way(account, block, tag)
            self._accounts.close(tag)
        self._settle_all(touched)

    def forgotten(self, block: Block) -> None:
        """The block has left memory, which a move between tiers is not. Leases that covered it are broken, except those
        that have served a reuse."""
        self._advance()
        self._moved.pop(block, None)
        cover = self._coverage.of(block)
        if cover is None:
            return
        for tag, terms in cover.by_tag().items():
            for term in terms:
                self._credit(cover, term, 1, "broken", block=term is terms[-1])
            self._accounts.close(tag)
        self._coverage.leave(block)

    def tallies(self) -> Mapping[str, Tally]:
        """The counters by tag as of now, to be read and not kept; tags beyond max_tags share those of OTHER."""
        self._advance()
        return MappingProxyType(self._accounts.tallies)

    def check(self) -> None:
        """The books; RuntimeError when they do not balance. For tests, and when idle."""
        self._accounts.check()
        held: dict[Cover[Block], list[Term[Block]]] = {}
        for lease in [lease for account in self._accounts.by_tag.values() for lease in account.leases()]:
            claims = [(cover, term) for term in lease.terms for cover in term.covers]
            if sum(cover.size for cover, _ in claims) != sum(lease.live):
                raise RuntimeError("leases: a block is not covered as the accounts say")
            for cover, term in claims:
                held.setdefault(cover, []).append(term)
        covers = self._coverage.covers()
        if not held.keys() <= covers.keys():
            raise RuntimeError("leases: an account leases a block that the book does not know")
        for cover, blocks in covers.items():
            if cover.size != len(blocks) or sorted(map(id, self._coverage.blocks(cover))) != sorted(map(id, blocks)):
                raise RuntimeError("leases: a cover has other blocks than it says")
            self._check_cover(cover, held.get(cover, []))
        self._check_charges(covers)

    def _check_charges(self, covers: Mapping[Cover[Block], list[Block]]) -> None:
        charged: dict[str, list[int]] = {tag: [0, 0, 0] for tag in self._accounts.by_tag}
        for cover, blocks in covers.items():
            if any(cover.tier != self._tier_of(block) for block in blocks):
                raise RuntimeError("leases: a block moved and the book was not told")
            for tag in cover.by_tag():
                charged.setdefault(tag, [0, 0, 0])[cover.tier] += cover.size
        if charged != {tag: account.leased for tag, account in self._accounts.by_tag.items()}:
            raise RuntimeError("leases: blocks are charged to other tiers than they are on")

    def _check_cover(self, cover: Cover[Block], held: list[Term[Block]]) -> None:
        if sorted(map(id, held)) != sorted(map(id, cover.all_terms())):
            raise RuntimeError("leases: a block is not covered as the accounts say")
        if cover.priority != cover.effective(self._default) or not (held or cover.priority < self._default):
            raise RuntimeError("leases: a priority is not settled, or an entry serves nothing")
        soonest = cover.soonest()
        if held and (soonest is None or min(held) < soonest):
            raise RuntimeError("leases: a lease on a block does not wait for its end")
        if soonest is None or cover.released is None or math.isinf(soonest.ttl):
            return
        if cover.due > cover.released + soonest.ttl or not self._timers.holds(cover):
            raise RuntimeError("leases: no timer rings when a lease ends")

    def _priority(self, block: Block) -> int:
        cover = self._coverage.of(block)
        return self._default if cover is None else cover.priority

    def _session(self, tag: str, session: str) -> Lease[Block] | None:
        account = self._accounts.by_tag.get(tag)
        return None if account is None else account.sessions.get(session)

    def _admit(
        self, account: Account[Block], term: Term[Block], blocks: Sequence[Block]
    ) -> tuple[int, list[Cover[Block]]]:
        """Claims the blocks in order, up to the first one that finds no room. Returns how many were claimed, and what
        is still to be settled."""
        term.lease.terms.append(term)
        fresh: dict[int, Cover[Block]] = {}
        touched: list[Cover[Block]] = []
        done = 0
        while done < len(blocks):
            cover, tier = self._home(blocks[done])
            own = cover.of(term.lease.tag) if cover is not None else []
            room = len(blocks) if own else account.room(tier)
            if room:
                part = self._stretch(blocks, done, room)
                account.charge(term.lease, tier, len(part), block=not own)
                if cover is None or cover.terms is None:
                    if tier not in fresh:
                        fresh[tier] = self._fresh(term, tier)
                    self._begin(fresh[tier], part)
                else:
                    touched.append(self._claim(cover, part, term))
                done += len(part)
                continue
            old = account.first_to_go(tier, term)
            if old is None:
                break
            touched += self._drop(old, "displaced")
        return done, touched

    def _home(self, block: Block) -> tuple[Cover[Block] | None, int]:
        """What the block is under, and the tier where it is."""
        cover = self._coverage.of(block)
        return cover, self._tier_of(block) if cover is None else cover.tier

    def _stretch(self, blocks: Sequence[Block], start: int, most: int) -> list[Block]:
        """From one block on, those that are at home where it is."""
        home, end, last = self._home(blocks[start]), start + 1, min(len(blocks), start + most)
        while end < last and self._home(blocks[end]) == home:
            end += 1
        return list(blocks[start:end])

    def _make_way(self, account: Account[Block], block: Block, tag: str) -> list[Cover[Block]]:
        """For a block that has come to a tier where its tag has too many: an older lease goes, or else those on it.
        Returns what is still to be settled."""
        cover, tier = self._home(block)
        assert cover is not None
        terms = cover.of(tag)
        old = account.first_to_go(tier, max(terms, key=lambda term: term.strength))
        if old is not None:
            return self._drop(old, "displaced")
        part = self._coverage.split(cover, [block])
        for term in terms:
            self._end(part, term, "displaced")
        return [part]

    def _claim(self, cover: Cover[Block], blocks: list[Block], term: Term[Block]) -> Cover[Block]:
        """One lease more on blocks of a cover."""
        claimed = self._coverage.split(cover, blocks)
        own = claimed.of(term.lease.tag)
        claimed.add(term)
        claimed.released, claimed.due = None, math.inf
        if term.priority < self._default:
            claimed.lowered = self._event
        if len(own) >= self._claims_per_block:
            self._end(claimed, min([*own, term], key=lambda one: one.strength), "kept")
        return claimed

    def _begin(self, cover: Cover[Block], blocks: list[Block]) -> None:
        """Blocks that no lease covers begin anew under this cover, whatever has been before: a use before a lease is
        no reuse, and a lease that is the only one is all that counts."""
        for block in blocks:
            before = self._priority(block)
            if before != cover.priority:
                self._moved.setdefault(block, before)
            self._coverage.join(cover, block)

    def _fresh(self, term: Term[Block], tier: int) -> Cover[Block]:
        cover: Cover[Block] = Cover(tier, term.priority)
        cover.add(term)
        if term.priority < self._default:
            cover.lowered = self._event
        return cover

    def _drop(self, lease: Lease[Block] | None, outcome: Outcome = "kept") -> list[Cover[Block]]:
        """Ends a lease; what it covered is still to be settled."""
        claims = [(cover, term) for term in (lease.terms if lease is not None else ()) for cover in term.covers]
        for cover, term in claims:
            self._end(cover, term, outcome)
        return [cover for cover, _ in claims]

    def _end(self, cover: Cover[Block], term: Term[Block], outcome: Outcome) -> None:
        """One lease on the blocks of a cover ends. They are still to be settled, so that its successor can take over
        first."""
        cover.remove(term)
        self._credit(cover, term, cover.size, outcome, block=not cover.of(term.lease.tag))

    def _credit(self, cover: Cover[Block], term: Term[Block], count: int, outcome: Outcome, *, block: bool) -> None:
        """Claims on so many blocks of a cover have ended; `block`: the tag has none on them any more."""
        served = cover.used > term.lease.born
        account = self._accounts.by_tag[term.lease.tag]
        account.credit(term.lease, cover.tier, count, block=block, outcome="kept" if served else outcome)

    def _settle_all(self, covers: Iterable[Cover[Block]]) -> None:
        for cover in dict.fromkeys(covers):
            self._settle(cover)

    def _settle(self, cover: Cover[Block]) -> None:
        """Works out the priority of blocks after a change, and lets go of them when they are ordinary ones."""
        before, cover.priority = cover.priority, cover.effective(self._default)
        blocks = self._coverage.blocks(cover) if cover.priority != before or cover.terms is None else []
        if cover.priority != before:
            for block in blocks:
                self._moved.setdefault(block, before)
        if cover.terms is None and cover.priority == self._default:
            for block in blocks:
                self._coverage.leave(block)

    def _advance(self) -> float:
        """Counts an event, and ends what has expired until now; returns now."""
        self._event += 1
        now = self._clock()
        for cover in self._timers.rung(now):
            self._expire(cover, now)
        return now

    def _expire(self, cover: Cover[Block], now: float) -> None:
        """Ends the leases of a cover whose time is over, one by one: what the blocks fall to is told by the last."""
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
        """Sets the timer of released blocks for the first of their leases that ends."""
        term = cover.soonest()
        if term is not None and cover.released is not None and not math.isinf(term.ttl):
            cover.due = cover.released + term.ttl
            self._timers.set(cover)
