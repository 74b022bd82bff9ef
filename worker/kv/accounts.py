"""What each tag may lease, what it leases now, and what became of what it was granted."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic

from worker.kv.cover import Block, Cover, Lease, Term

OTHER = "(other)"


@dataclass(slots=True)
class Tally:
    """Counters of one tag. All but `leased` count claims: a claim is one lease on one block, counted once.

    granted     claims given; at all times granted == kept + broken + live
    refused     claims not given for want of budget
    kept        claims that ended, by time, by their owner or by a successor, while the block was there or after a reuse
    broken      claims whose block left memory while they ran, and before anyone reused it
    live        claims that run
    leased      blocks that are under at least one claim
    """

    granted: int = 0
    refused: int = 0
    kept: int = 0
    broken: int = 0
    live: int = 0
    leased: int = 0


class Account(Generic[Block]):
    """What one tag leases now. It exists only while there is something.

    budget      blocks that it may lease; a block counts once, however many of its leases cover it
    covers      its blocks, each with the terms of this tag on it, oldest first
    sessions    the last lease of each named session
    """

    __slots__ = ("budget", "covers", "sessions", "tally")

    def __init__(self, budget: int, tally: Tally) -> None:
        self.budget = budget
        self.tally = tally
        self.covers: dict[Cover[Block], list[Term[Block]]] = {}
        self.sessions: dict[str, Lease[Block]] = {}

    def admits(self, cover: Cover[Block] | None) -> bool:
        """Whether one more claim, on this block or on a new one, stays within the budget."""
        return len(self.covers) < self.budget or (cover is not None and cover in self.covers)

    def add(self, cover: Cover[Block], term: Term[Block]) -> None:
        if cover not in self.covers:
            self.covers[cover] = []
            self.tally.leased += 1
        self.covers[cover].append(term)
        term.lease.claims[cover] = term
        self.tally.granted += 1
        self.tally.live += 1

    def remove(self, cover: Cover[Block], term: Term[Block], *, kept: bool) -> None:
        lease = term.lease
        del lease.claims[cover]
        if not lease.claims and self.sessions.get(lease.session) is lease:
            del self.sessions[lease.session]
        self.covers[cover].remove(term)
        if not self.covers[cover]:
            del self.covers[cover]
            self.tally.leased -= 1
        self.tally.live -= 1
        self.tally.kept += kept
        self.tally.broken += not kept


class Accounts(Generic[Block]):
    """The accounts by tag, and the tallies that outlive them.

    The first max_tags tags have a tally of their own; those that come later share one named OTHER, since tags come from
    outside and each is a label of a metric. Budgets are kept apart for every tag all the same.
    """

    def __init__(self, budget: int, budgets: Mapping[str, int], max_tags: int) -> None:
        if min(budget, *budgets.values(), max_tags) < 0:
            raise ValueError("a budget of leased blocks, or the number of tags, is negative")
        self.tallies: dict[str, Tally] = {}
        self.by_tag: dict[str, Account[Block]] = {}
        self._budget = budget
        self._budgets = dict(budgets)
        self._max_tags = max_tags

    def open(self, tag: str) -> Account[Block]:
        account = self.by_tag.get(tag)
        if account is None:
            account = self.by_tag[tag] = Account(self._budgets.get(tag, self._budget), self._tally(tag))
        return account

    def close(self, tag: str) -> None:
        """Forgets the account when nothing is left on it."""
        if not self.by_tag[tag].covers:
            del self.by_tag[tag]

    def check(self) -> None:
        """RuntimeError when a budget is exceeded, or when tallies and accounts differ."""
        for account in self.by_tag.values():
            if len(account.covers) > account.budget or not account.covers:
                raise RuntimeError("leases: an account is over its budget or empty")
            leases = {term.lease for terms in account.covers.values() for term in terms}
            if {lease for lease in leases if lease.session} != set(account.sessions.values()):
                raise RuntimeError("leases: a session has a lease that is not its last, or that covers nothing")
        tallies = self.tallies.values()
        claims = sum(len(terms) for account in self.by_tag.values() for terms in account.covers.values())
        leased = sum(len(account.covers) for account in self.by_tag.values())
        if (sum(tally.live for tally in tallies), sum(tally.leased for tally in tallies)) != (claims, leased):
            raise RuntimeError("leases: what is counted as live or leased differs from the accounts")
        if any(tally.granted != tally.kept + tally.broken + tally.live for tally in tallies):
            raise RuntimeError("leases: granted is not kept, broken and live together")

    def _tally(self, tag: str) -> Tally:
        name = tag if tag in self.tallies or len(self.tallies) < self._max_tags else OTHER
        return self.tallies.setdefault(name, Tally())
