"""The laws of retention leases: the book against a flat list of claims that is searched from end to end."""

import math
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from worker.kv.accounts import OTHER, ByTier, Tally
from worker.kv.leases import LeaseBook
from worker.kv.ranges import Granted, LeaseRange

DEFAULT = 35
BUDGET = ByTier(device=4, host=2, disk=1)
PER_BLOCK = 2
BLOCKS = range(7)
TAGS = ["acme", "globex", "initech"]
NAMED = ["acme", "globex"]  # the tags that come first and have counters of their own


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass(eq=False, slots=True)
class Claim:
    """One lease on one block. turn: which grant it comes from; high: the highest priority of that one."""

    turn: int
    high: int
    tag: str
    session: str
    block: int
    priority: int
    ttl: float
    reused: bool = False


@dataclass(slots=True)
class Fact:
    """What the model knows of a block that is under lease or below the default."""

    priority: int = DEFAULT
    released: float | None = None
    spoken_for: bool = False  # used since the last lease below the default


@dataclass
class Model:
    """One flat list of claims, searched from end to end.

    where      tier by block
    arrived    when a turn's first claim came to a tier, by turn and tier
    """

    claims: list[Claim] = field(default_factory=list)
    where: dict[int, int] = field(default_factory=lambda: dict.fromkeys(BLOCKS, 0))
    arrived: dict[tuple[int, int], int] = field(default_factory=dict)
    turns: int = 0
    arrivals: int = 0
    facts: dict[int, Fact] = field(default_factory=dict)
    tallies: dict[str, Tally] = field(default_factory=dict)

    def on(self, block: int, tag: str | None = None) -> list[Claim]:
        return [claim for claim in self.claims if claim.block == block and tag in (None, claim.tag)]

    def leased(self, tag: str, tier: int) -> set[int]:
        return {claim.block for claim in self.claims if claim.tag == tag and self.where[claim.block] == tier}

    def first_to_go(self, tier: int, asking: Claim) -> int | None:
        """The turn of the same tag that makes room: no higher, the lowest, then who came first to the tier."""
        turns = {
            (claim.high, self.arrived[claim.turn, tier], claim.turn)
            for claim in self.claims
            if claim.tag == asking.tag and claim.turn != asking.turn and claim.high <= asking.priority
            if self.where[claim.block] == tier
        }
        return min(turns)[2] if turns else None

    def displace(self, turn: int) -> None:
        for claim in [claim for claim in self.claims if claim.turn == turn]:
            self.end(claim, "displaced")

    def note_arrivals(self) -> None:
        present = dict.fromkeys((claim.turn, self.where[claim.block]) for claim in self.claims)
        self.arrived = {key: at for key, at in self.arrived.items() if key in present}
        for key in present:
            self.arrivals += 1
            self.arrived.setdefault(key, self.arrivals)

    def tally(self, tag: str) -> Tally:
        return self.tallies.setdefault(tag if tag in NAMED else OTHER, Tally())

    def ends_at(self, claim: Claim) -> float:
        released = self.facts[claim.block].released
        return math.inf if released is None else released + claim.ttl

    def end(self, claim: Claim, outcome: str = "kept") -> None:
        """A claim that has served a reuse was kept, however it ended."""
        self.claims.remove(claim)
        outcome, tally = "kept" if claim.reused else outcome, self.tally(claim.tag)
        setattr(tally, outcome, getattr(tally, outcome) + 1)
        self.note_arrivals()

    def settle(self) -> None:
        for block, fact in list(self.facts.items()):
            held = [claim.priority for claim in self.on(block)]
            fact.priority = max(held) if held else min(fact.priority, DEFAULT)
            if fact.spoken_for:
                fact.priority = max(fact.priority, DEFAULT)
            if not held and fact.priority == DEFAULT:
                del self.facts[block]

    def pass_until(self, now: float) -> None:
        """Ends what expires, each at its moment; expiry never raises a block."""
        while ending := [claim for claim in self.claims if self.ends_at(claim) <= now]:
            first = min(ending, key=lambda claim: (self.ends_at(claim), claim.priority))
            before = self.priority(first.block)
            self.end(first)
            self.settle()
            assert self.priority(first.block) <= before
            if not self.on(first.block):
                assert self.priority(first.block) == min(before, DEFAULT)

    def priority(self, block: int) -> int:
        return self.facts[block].priority if block in self.facts else DEFAULT


class NaiveLeases(RuleBasedStateMachine):
    """Turns of sessions of three tags over one path of blocks, with a budget for half of it."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.model = Model()
        self.book: LeaseBook[int] = LeaseBook(
            self.clock,
            self.model.where.__getitem__,
            budget=BUDGET,
            claims_per_block=PER_BLOCK,
            max_tags=len(NAMED),
        )
        self.offered = dict.fromkeys(BLOCKS, DEFAULT)

    @initialize()
    def the_first_tags_are_named(self) -> None:
        for tag in NAMED:
            self.book.grant(tag, "", [])
            self.model.tally(tag)

    @rule(
        tag=st.sampled_from(TAGS),
        session=st.sampled_from(["", "one", "two"]),
        start=st.sampled_from(BLOCKS),
        parts=st.lists(
            st.tuples(
                st.integers(1, 4), st.sampled_from([0, 20, 35, 80, 100]), st.sampled_from([0, 1, 5, 9, math.inf])
            ),
            max_size=3,
        ),
    )
    def grant(self, tag: str, session: str, start: int, parts: list[tuple[int, int, float]]) -> None:
        ranges = []
        for size, priority, ttl in parts:
            ranges.append(LeaseRange(BLOCKS[start : start + size], priority, ttl))
            start += size
        granted = self.book.grant(tag, session, ranges)
        model = self.model
        for claim in [claim for claim in model.claims if session and (claim.tag, claim.session) == (tag, session)]:
            model.end(claim)
        model.turns += 1
        model.tally(tag)
        high = max((part.priority for part in ranges if part.blocks), default=0)
        asked = [
            Claim(model.turns, high, tag, session, block, part.priority, part.ttl)
            for part in ranges
            for block in part.blocks
        ]
        taken = 0
        while taken < len(asked) and self.has_room(asked[taken]):
            self.claim(asked[taken])
            taken += 1
        if taken < len(asked):
            model.tally(tag).refused[model.where[asked[taken].block]] += len(asked) - taken
        model.settle()
        assert granted == Granted(taken, len(asked) - taken)

    def has_room(self, claim: Claim) -> bool:
        """Whether the budget has room, after older leases of the tag were given up."""
        model, tier = self.model, self.model.where[claim.block]
        while not model.on(claim.block, claim.tag) and len(model.leased(claim.tag, tier)) >= BUDGET[tier]:
            old = model.first_to_go(tier, claim)
            if old is None:
                return False
            model.displace(old)
        return True

    def claim(self, claim: Claim) -> None:
        """The strongest claims of a tag on a block are remembered; of equal ones, the newest."""
        self.model.claims.append(claim)
        self.model.tally(claim.tag).granted += 1
        self.model.note_arrivals()
        fact = self.model.facts.setdefault(claim.block, Fact())
        fact.released = None
        fact.spoken_for = fact.spoken_for and claim.priority >= DEFAULT
        own = self.model.on(claim.block, claim.tag)
        if len(own) > PER_BLOCK:
            self.model.end(min(own, key=lambda one: (one.priority, one.ttl)))

    @rule(blocks=st.lists(st.sampled_from(BLOCKS), max_size=5))
    def used(self, blocks: list[int]) -> None:
        self.book.used(blocks)
        for block in blocks:
            if block in self.model.facts:
                self.model.facts[block].spoken_for, self.model.facts[block].released = True, None
            for claim in self.model.on(block):
                claim.reused = True
        self.model.settle()

    @rule(blocks=st.lists(st.sampled_from(BLOCKS), max_size=5))
    def released(self, blocks: list[int]) -> None:
        self.book.released(blocks)
        for fact in [fact for block, fact in self.model.facts.items() if block in blocks and fact.released is None]:
            fact.released = self.clock.now
        self.model.pass_until(self.clock.now)

    @rule(block=st.sampled_from(BLOCKS), tier=st.sampled_from([0, 1, 2]))
    def moved(self, block: int, tier: int) -> None:
        model = self.model
        model.where[block] = tier
        self.book.moved(block)
        model.note_arrivals()
        for tag in TAGS:
            while len(model.leased(tag, tier)) > BUDGET[tier]:
                own = model.on(block, tag)
                old = model.first_to_go(tier, max(own, key=lambda one: (one.priority, one.ttl)))
                if old is not None:
                    model.displace(old)
                else:
                    for claim in own:
                        model.end(claim, "displaced")
        model.settle()

    @rule(seconds=st.sampled_from([1, 2, 4, 12]))
    def wait(self, seconds: float) -> None:
        self.clock.now += seconds
        self.model.pass_until(self.clock.now)

    @rule(tag=st.sampled_from(TAGS), session=st.sampled_from(["", "one", "two"]))
    def drop_session(self, tag: str, session: str) -> None:
        gone = [claim for claim in self.model.claims if session and (claim.tag, claim.session) == (tag, session)]
        self.drop(gone)
        assert self.book.drop_session(tag, session) == len(gone)

    @rule(tag=st.sampled_from(TAGS), blocks=st.sets(st.sampled_from(BLOCKS), max_size=4))
    def drop_blocks(self, tag: str, blocks: set[int]) -> None:
        gone = [claim for block in blocks for claim in self.model.on(block, tag)]
        self.drop(gone)
        assert self.book.drop_blocks(tag, sorted(blocks)) == len({claim.block for claim in gone})

    def drop(self, claims: list[Claim]) -> None:
        before = {block: self.model.priority(block) for block in BLOCKS}
        for claim in claims:
            self.model.end(claim)
        self.model.settle()
        assert all(self.model.priority(block) <= before[block] for block in BLOCKS)

    @rule(block=st.sampled_from(BLOCKS))
    def forgotten(self, block: int) -> None:
        self.book.forgotten(block)
        for claim in self.model.on(block):
            self.model.end(claim, "broken")
        self.model.facts.pop(block, None)
        self.offered[block] = DEFAULT

    @rule()
    def reoffer(self) -> None:
        """An eviction heap that asks for what is due holds the right priority for every block, and is told no more."""
        for block in self.book.due():
            assert self.offered[block] != self.book.priority(block)
            self.offered[block] = self.book.priority(block)
        assert self.offered == {block: self.model.priority(block) for block in BLOCKS}
        assert self.book.due() == []

    @invariant()
    def same_priorities(self) -> None:
        assert [self.book.priority(block) for block in BLOCKS] == [self.model.priority(block) for block in BLOCKS]
        assert len(self.book) == len(self.model.facts)

    @invariant()
    def same_tallies(self) -> None:
        for name, tally in self.model.tallies.items():
            tags = [tag for tag in TAGS if (tag if tag in NAMED else OTHER) == name]
            tally.live = sum(claim.tag in tags for claim in self.model.claims)
            tally.leased = [sum(len(self.model.leased(tag, tier)) for tag in tags) for tier in range(3)]
            assert tally.granted == tally.kept + tally.displaced + tally.broken + tally.live
        assert self.book.tallies() == self.model.tallies
        self.book.check()

    def teardown(self) -> None:
        """Once every block is forgotten, nothing is left but the counters."""
        for block in BLOCKS:
            self.book.forgotten(block)
        self.clock.now += 1000
        assert self.book.due() == []
        assert (len(self.book), self.book._accounts.by_tag, len(self.book._timers)) == (0, {}, 0)
        assert all((tally.live, tally.leased) == (0, [0, 0, 0]) for tally in self.book.tallies().values())
        self.book.check()


NaiveLeases.TestCase.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
TestNaiveLeases = NaiveLeases.TestCase
