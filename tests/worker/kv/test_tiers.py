"""Device, host and disk together: nothing is lost without a word, and nothing wrong ever comes back."""

from array import array
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from cacheplane.identity import BlockChain, Namespace, Span
from cacheplane.wire import BlockStored, Tier
from cacheplane.wire import Event as BlockEvent
from tests.worker.kv.late import LateCopier
from tests.worker.kv.layouts import HalfSlots, LayoutClass
from tests.worker.kv.ledger import listed, replayed
from tests.worker.kv.sequences import BLOCK, PUBLIC, Running, Sequences, check_slot, compute, prompts
from tests.worker.kv.tiered import PATIENCE_S, Clock, damage, idle, live, loaded, quiet, tiered
from tests.worker.rig import ACME, GLOBEX
from worker.kv import KVMemory, PagedLayout, SlotLayout
from worker.kv.record import record_of
from worker.kv.staging import Staging
from worker.wire import Cached, Retention, RetentionRange


class EveryTier(Sequences):
    """Sequences, leases, releases and restarts over three tiers that are all too small, where blocks that are loaded
    may come long after they were asked for, and those that are written be there as late.

    coming    sequences whose blocks are on their way
    gate      what the loader waits for, if it does
    stalled   what the disk's writer waits for, if it does
    """

    blocks = 3
    one_always_fits = False

    def __init__(self) -> None:
        self.folder = TemporaryDirectory()
        self.clock = Clock()
        super().__init__(self.start())
        self.events: list[BlockEvent] = []
        self.stored: set[bytes] = set()
        self.coming: list[Running] = []
        self.gate: Event | None = None
        self.stalled: Event | None = None

    @rule(
        tokens=prompts,
        namespace=st.sampled_from([ACME, GLOBEX]),
        barrier=st.sampled_from([None, None, 4]),
        store=st.sampled_from([True, True, True, False]),
        late=st.booleans(),
    )
    def open(self, tokens: list[int], namespace: Namespace, barrier: int | None, store: bool, late: bool) -> None:
        if late and self.gate is None:
            self.gate = Event()
            self.memory.reuse._loader._thread.submit(self.gate.wait, PATIENCE_S)
        spans = [Span(0, namespace), *([] if barrier is None else [Span(barrier, GLOBEX)])]
        holding = self.memory.open(array("I", tokens), spans, store=store)
        if holding is None:
            return
        self.coming.append(Running(tokens, spans, holding, 0, store))
        if not holding.loading:
            self.begin(self.coming.pop())
        elif not late:
            self.what_was_late_arrives()

    @rule()
    def what_was_late_arrives(self) -> None:
        if self.gate is not None:
            self.gate.set()
            self.gate = None
        while self.coming:
            one = self.coming.pop(0)
            loaded(self.memory, one.holding)
            self.begin(one)
        idle(self.memory)

    @precondition(lambda self: self.stalled is None)
    @rule()
    def the_disk_stalls(self) -> None:
        self.stalled = Event()
        self.memory.tiers.disk._writer.submit(self.stalled.wait, PATIENCE_S)

    @rule()
    def the_disk_goes_on(self) -> None:
        if self.stalled is not None:
            self.stalled.set()
            self.stalled = None
        quiet(self.memory)

    def begin(self, one: Running) -> None:
        cached = one.holding.cached
        one.computed = one.holding.reused
        assert one.computed == cached.device + cached.host + cached.disk + cached.partial
        check_slot(self.memory, one.holding, one.tokens, one.computed)
        # A hash commits to namespace and tokens, so nothing is reused that was not stored under this very identity.
        self.heard()
        assert set(BlockChain.of(one.tokens[: one.computed], one.spans, BLOCK).hashes) <= self.stored
        self.running.append(one)

    @precondition(lambda self: self.coming)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        """A client, before its prefix was there."""
        one = data.draw(st.sampled_from(self.coming))
        self.coming.remove(one)
        self.memory.close(one.holding)

    @precondition(lambda self: self.running)
    @rule(
        data=st.data(),
        priority=st.sampled_from([None, 0, 10, 90]),
        session=st.sampled_from(["", "one"]),
        tag=st.sampled_from(["acme", "globex"]),
    )
    def close(self, data: st.DataObject, priority: int | None, session: str, tag: str) -> None:
        one = data.draw(st.sampled_from(self.running))
        self.running.remove(one)
        retention = None if priority is None else Retention([RetentionRange(priority, 5_000)], session)
        self.memory.keep_tail(one.holding, array("I", one.tokens), one.computed)
        self.memory.close(one.holding, tag, retention)

    @rule(tokens=prompts, namespace=st.sampled_from([ACME, GLOBEX]))
    def release(self, tokens: list[int], namespace: Namespace) -> None:
        self.memory.release("acme", "one", array("I", tokens), [Span(0, namespace)])

    @rule(
        tokens=prompts,
        priority=st.sampled_from([0, 90]),
        start=st.sampled_from([0, 0, BLOCK]),
        session=st.sampled_from(["", "one"]),
    )
    def retain(self, tokens: list[int], priority: int, start: int, session: str) -> None:
        retention = Retention([RetentionRange(priority, 5_000, start)], session)
        assert self.memory.retain("acme", retention, array("I", tokens), [Span(0, ACME)]) <= len(tokens) // BLOCK

    @rule(seconds=st.sampled_from([1.0, 10.0]))
    def time_passes(self, seconds: float) -> None:
        self.clock.now += seconds
        self.memory.poll()

    @rule(rate=st.sampled_from([0.0, 1.0, 1e12]))
    def the_engine_measures(self, rate: float) -> None:
        """At an absurd rate nothing is worth loading."""
        self.memory.reuse.prefill_tps = rate

    @rule(data=st.data())
    def a_file_goes_bad(self, data: st.DataObject) -> None:
        self.the_disk_goes_on()
        if files := sorted(Path(self.folder.name).iterdir()):
            damage(data.draw(st.sampled_from(files)))

    @rule()
    def only_what_the_tree_knows_is_on_disk(self) -> None:
        self.the_disk_goes_on()
        known = {block.hash.hex() for block in self.memory.snapshot() if block.tier == Tier.DISK}
        assert {path.stem for path in Path(self.folder.name).iterdir()} == known

    @precondition(lambda self: not self.running and not self.coming)
    @rule()
    def restart(self) -> None:
        """What was on disk is there again, unless its file went bad; what the events say starts anew."""
        self.what_was_late_arrives()
        self.the_disk_goes_on()
        self.memory.shut()
        kept = {digest for digest, tier in listed(self.memory.snapshot()) if tier.name == "DISK"}
        self.memory = self.start()
        self.events = []
        assert {digest for digest, _ in listed(self.memory.snapshot())} <= kept

    @invariant()
    def the_events_tell_exactly_the_tree(self) -> None:
        self.memory.poll()
        self.heard()
        assert replayed(self.events) == listed(self.memory.snapshot())

    @invariant()
    def the_books_balance(self) -> None:
        self.memory.check()

    def start(self) -> KVMemory:
        memory = tiered(
            Path(self.folder.name), layout=self.layout, blocks=self.blocks, clock=self.clock, copier=LateCopier()
        )
        memory.tiers.disk._staging = Staging(2, memory.tiers.disk.file_bytes)  # so that a stall is felt
        return memory

    def heard(self) -> None:
        self.events += self.memory.take_events()
        self.stored |= {hash_ for event in self.events if isinstance(event, BlockStored) for hash_ in event.hashes}

    def teardown(self) -> None:
        self.what_was_late_arrives()
        self.the_disk_goes_on()
        self.memory.shut()
        self.folder.cleanup()


class OverSlots(EveryTier):
    layout = SlotLayout


class OverHalfSlots(EveryTier):
    layout = HalfSlots


class OverPages(EveryTier):
    layout, blocks = PagedLayout, 5


for machine, examples in ((OverSlots, 20), (OverHalfSlots, 30), (OverPages, 40)):
    machine.TestCase.settings = settings(max_examples=examples, stateful_step_count=40, deadline=None)
TestOverSlots, TestOverHalfSlots, TestOverPages = OverSlots.TestCase, OverHalfSlots.TestCase, OverPages.TestCase


def test_what_leaves_the_device_comes_back_from_host_and_then_from_disk(layout: LayoutClass, tmp_path: Path) -> None:
    memory = tiered(tmp_path, layout=layout, blocks=2, host=2, disk=8)
    assert live(memory, [1] * 9) == (0, 0, 0)
    assert live(memory, [2] * 9) == (0, 0, 0)
    assert live(memory, [1] * 9) == (0, 8, 0)
    assert live(memory, [3] * 9) == (0, 0, 0)
    assert live(memory, [4] * 9) == (0, 0, 0)
    assert sum(live(memory, [2] * 9)) == 8
    assert live(memory, [2] * 9) == (8, 0, 0)
    memory.shut()


def test_two_tenants_never_share_in_any_tier_and_each_finds_its_own(layout: LayoutClass, tmp_path: Path) -> None:
    memory = tiered(tmp_path, layout=layout, blocks=2, host=2, disk=20)
    tokens, mine, theirs = [7] * 9, [Span(0, ACME)], [Span(0, GLOBEX)]
    for push in range(4):
        assert live(memory, tokens, theirs if push % 2 else mine)[0] in (0, 8)
        live(memory, [20 + push] * 9)
        live(memory, [30 + push] * 9)
        stranger = [Span(0, Namespace(bytes([push]) * 32))]
        assert live(memory, tokens, stranger) == (0, 0, 0)
    assert sum(live(memory, tokens, mine)) == 8
    assert sum(live(memory, tokens, theirs)) == 8
    memory.shut()


def test_below_the_gate_a_block_is_not_copied_down(layout: LayoutClass, tmp_path: Path) -> None:
    memory = tiered(tmp_path, layout=layout, blocks=2, host=4, disk=4)
    live(memory, [1] * 9, retention=Retention([RetentionRange(5, 600_000)]))
    live(memory, [2] * 9)
    assert memory.tiers.host.free == memory.tiers.host.total
    assert live(memory, [1] * 9) == (0, 0, 0)
    memory.shut()


def test_a_block_that_one_waits_for_and_another_has_computed_stays_where_it_is_needed(tmp_path: Path) -> None:
    """The disk has lost it, and there is no room to store it: who waits still stands on it."""
    memory = tiered(tmp_path, blocks=2, host=0, disk=6)
    tokens, others, gate = array("I", [1] * 6), array("I", [9] * 9), Event()
    for prompt in ([1] * 5, [2] * 5, [3] * 5):
        live(memory, prompt)
    memory.reuse._loader._thread.submit(gate.wait, PATIENCE_S)
    waiting, other = memory.open(tokens, PUBLIC), memory.open(others, PUBLIC)
    assert waiting is not None
    assert other is not None
    assert waiting.loading
    compute(memory, other, others, 0, 9)
    memory.extend(other, others, 9)
    assert other.stored == 2  # all that there is room for
    damage(tmp_path / f"{waiting.node.digest.hex()}.kv")
    assert memory.tiers.disk.load(record_of(waiting.node)).result() is None
    memory.poll()
    computing = memory.open(tokens, PUBLIC)
    assert computing is not None
    compute(memory, computing, tokens, 0, 6)
    memory.extend(computing, tokens, 6)
    assert (computing.stored, computing.storing) == (0, False)
    gate.set()
    assert loaded(memory, waiting).reused == 0
    for holding in (waiting, other, computing):
        memory.close(holding)
    memory.check()
    memory.shut()


def test_a_block_may_be_lost_with_what_its_path_begins_with_while_it_makes_room(tmp_path: Path) -> None:
    """The second block of three is on disk alone, so that the first is the only one on host, and a lease of its owner
    says that it goes before all others."""
    memory = tiered(tmp_path, blocks=2, host=1, disk=6)
    live(memory, [1] * 9)
    tokens, others = array("I", [1] * 13), array("I", [2] * 9)
    other = memory.open(others, PUBLIC)
    assert other is not None
    compute(memory, other, others, 0, 9)
    memory.extend(other, others, 9)
    quiet(memory)
    third = memory.open(tokens, PUBLIC)
    assert third is not None
    assert loaded(memory, third).cached == Cached(host=4, disk=4)
    memory.close(other)
    compute(memory, third, tokens, 8, 13)
    memory.extend(third, tokens, 13)
    memory.close(third)
    quiet(memory)
    assert memory.release("acme", "", tokens, PUBLIC) == 3
    memory.retain("acme", Retention([RetentionRange(0, 600_000)]), tokens[:4], PUBLIC)
    live(memory, [5] * 9)
    assert memory.known(tokens, PUBLIC) == 0
    memory.shut()
