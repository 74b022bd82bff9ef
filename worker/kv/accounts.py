"""What each tag may lease, what it leases now, and what became of what it was granted."""

from dataclasses import dataclass, field
from typing import Generic, Literal, NamedTuple, TypeAlias

from worker.kv.cover import Block, Lease, Term

OTHER = "(other)"
Outcome: TypeAlias = Literal["kept", "displaced", "broken"]


class ByTier(NamedTuple):
    """A number of blocks for each tier."""

    device: int = 0
    host: int = 0
    disk: int = 0


@dataclass(slots=True)
class Tally:
    """Counters of one tag. granted, kept, displaced and broken count claims: a claim is one lease on one block, counted
    once, and at all times granted == kept + displaced + broken + live.

    granted      claims given
    refused      claims not given for want of budget, by the tier that had none
    kept         claims that ended, by time, by their owner or by a successor, or in another way after a reuse
    displaced    claims that ended, before anyone reused the block, because the tag's budget on a tier was needed for a
                 newer lease of its own, or had no room for a block that came down to it
    broken       claims whose block left memory while they ran, and before anyone reused it
    live         claims that run
    leased       blocks that are under at least one claim, by the tier where they are held
    """

    granted: int = 0
    refused: list[int] = field(default_factory=lambda: [0, 0, 0])
    kept: int = 0
    displaced: int = 0
    broken: int = 0
    live: int = 0
    leased: list[int] = field(default_factory=lambda: [0, 0, 0])


class Account(Generic[Block]):
    """What one tag leases now. It exists only while there is something.

    leased      blocks by tier; a block counts once, however many of the tag's leases cover it
    sessions    the last lease of each named session
    """

    __slots__ = ("_budget", "_lines", "leased", "sessions", "tally")

    def __init__(self, budget: ByTier, tally: Tally) -> None:
        self.tally = tally
        self.leased = [0, 0, 0]
        self.sessions: dict[str, Lease[Block]] = {}
        self._budget = budget
        # The leases with blocks on a tier, by priority, each line in the order in which they came to the tier.
        self._lines: tuple[dict[int, dict[Lease[Block], None]], ...] = ({}, {}, {})

    @property
    def empty(self) -> bool:
        return not any(self.leased)

    def room(self, tier: int) -> int:
        """How many blocks more the tag may lease there."""
        return self._budget[tier] - self.leased[tier]

    def is_over(self, tier: int) -> bool:
        return self.leased[tier] > self._budget[tier]

    def first_to_go(self, tier: int, asking: Term[Block]) -> Lease[Block] | None:
        """The lease that makes room on a tier for another one: of no higher priority, the lowest, then the oldest."""
        for priority in sorted(self._lines[tier]):
            if priority > asking.priority:
                break
            for lease in self._lines[tier][priority]:
                if lease is not asking.lease:
                    return lease
        return None

    def charge(self, lease: Lease[Block], tier: int, count: int, *, block: bool) -> None:
        """A lease has been given claims on blocks on this tier; `block`: the tag had none on them before."""
        self.tally.granted += count
        self.tally.live += count
        self._enter(lease, tier, count, count * block)

    def transfer(self, lease: Lease[Block], before: int, tier: int, *, block: bool) -> None:
        """A block has moved that the lease covers; `block`: it is not counted yet as having moved."""
        self._leave(lease, before, 1, int(block))
        self._enter(lease, tier, 1, int(block))

    def credit(self, lease: Lease[Block], tier: int, count: int, *, block: bool, outcome: Outcome) -> None:
        """Claims have ended; `block`: the tag has none on the blocks any more."""
        self._leave(lease, tier, count, count * block)
        self.tally.live -= count
        setattr(self.tally, outcome, getattr(self.tally, outcome) + count)
        if not any(lease.live) and self.sessions.get(lease.session) is lease:
            del self.sessions[lease.session]

    def _enter(self, lease: Lease[Block], tier: int, claims: int, blocks: int) -> None:
        if not lease.live[tier]:
            self._lines[tier].setdefault(lease.priority, {})[lease] = None
        lease.live[tier] += claims
        self.leased[tier] += blocks
        self.tally.leased[tier] += blocks

    def _leave(self, lease: Lease[Block], tier: int, claims: int, blocks: int) -> None:
        lease.live[tier] -= claims
        if not lease.live[tier]:
            line = self._lines[tier][lease.priority]
            del line[lease]
            if not line:
                del self._lines[tier][lease.priority]
        self.leased[tier] -= blocks
        self.tally.leased[tier] -= blocks

    def leases(self) -> set[Lease[Block]]:
        """Those that cover something."""
        return {lease for lines in self._lines for line in lines.values() for lease in line}


class Accounts(Generic[Block]):
    """The accounts by tag, and the tallies that outlive them.

    The first max_tags tags have a tally of their own; those that come later share one named OTHER, since tags come from
    outside and each is a label of a metric. Budgets are kept apart for every tag all the same.
    """

    def __init__(self, budget: ByTier, max_tags: int) -> None:
        if min(*budget, max_tags) < 0:
            raise ValueError("a budget of leased blocks, or the number of tags, is negative")
        self.tallies: dict[str, Tally] = {}
        self.by_tag: dict[str, Account[Block]] = {}
        self._budget = budget
        self._max_tags = max_tags

    def open(self, tag: str) -> Account[Block]:
        account = self.by_tag.get(tag)
        if account is None:
            account = self.by_tag[tag] = Account(self._budget, self._tally(tag))
        return account

    def close(self, tag: str) -> None:
        """Forgets the account when nothing is left on it."""
        if tag in self.by_tag and self.by_tag[tag].empty:
            del self.by_tag[tag]

    def check(self) -> None:
        """RuntimeError when a budget is exceeded, or when tallies and accounts differ."""
        for account in self.by_tag.values():
            if account.empty or any(account.is_over(tier) for tier in range(3)):
                raise RuntimeError("leases: an account is over its budget or empty")
            if {lease for lease in account.leases() if lease.session} != set(account.sessions.values()):
                raise RuntimeError("leases: a session has a lease that is not its last, or that covers nothing")
        tallies = self.tallies.values()
        claims = sum(sum(lease.live) for account in self.by_tag.values() for lease in account.leases())
        leased = [sum(account.leased[tier] for account in self.by_tag.values()) for tier in range(3)]
        counted = [sum(tally.leased[tier] for tally in tallies) for tier in range(3)]
        if (sum(tally.live for tally in tallies), counted) != (claims, leased):
            raise RuntimeError("leases: what is counted as live or leased differs from the accounts")
        if any(tally.granted != tally.kept + tally.displaced + tally.broken + tally.live for tally in tallies):
            raise RuntimeError("leases: granted is not kept, displaced, broken and live together")

    def _tally(self, tag: str) -> Tally:
        name = tag if tag in self.tallies or len(self.tallies) < self._max_tags else OTHER
        return self.tallies.setdefault(name, Tally())
