"""Device, host and disk together: nothing is lost without a word, and nothing wrong ever comes back."""

from array import array
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from cacheplane.identity import BlockChain, Namespace, Span
from cacheplane.wire import BlockStored, Event, Tier
from tests.worker.kv.late import LateCopier
from tests.worker.kv.layouts import HalfSlots, LayoutClass
from tests.worker.kv.ledger import listed, replayed
from tests.worker.kv.sequences import BLOCK, Running, Sequences, check_slot, prompts
from tests.worker.kv.tiered import Clock, damage, live, loaded, quiet, tiered
from tests.worker.rig import ACME, GLOBEX
from worker.kv import KVMemory, PagedLayout, SlotLayout
from worker.wire import Retention, RetentionRange


class EveryTier(Sequences):
    """Sequences, leases, releases and restarts over three tiers that are all too small."""

    blocks = 3
    one_always_fits = False

    def __init__(self) -> None:
        self.folder = TemporaryDirectory()
        self.clock = Clock()
        super().__init__(self.start())
        self.events: list[Event] = []
        self.stored: set[bytes] = set()

    @rule(
        tokens=prompts,
        namespace=st.sampled_from([ACME, GLOBEX]),
        barrier=st.sampled_from([None, None, 4]),
        store=st.sampled_from([True, True, True, False]),
        patient=st.sampled_from([True, True, False]),
    )
    def open(self, tokens: list[int], namespace: Namespace, barrier: int | None, store: bool, patient: bool) -> None:
        spans = [Span(0, namespace), *([] if barrier is None else [Span(barrier, GLOBEX)])]
        holding = self.memory.open(array("I", tokens), spans, store=store)
        if holding is None:
            return
        if not patient and holding.loading:
            self.memory.close(holding)  # the client left before its prefix was there
            loaded(self.memory, holding)
            return
        loaded(self.memory, holding)
        cached = holding.cached
        assert holding.reused == cached.device + cached.host + cached.disk + cached.partial
        check_slot(self.memory, holding, tokens, holding.reused)
        # A hash commits to namespace and tokens, so nothing is reused that was not stored under this very identity.
        self.heard()
        assert set(BlockChain.of(tokens[: holding.reused], spans, BLOCK).hashes) <= self.stored
        self.running.append(Running(tokens, spans, holding, holding.reused, store))

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
        session=st.sampled_from(["", "one"]),
    )
    def retain(self, tokens: list[int], priority: int, session: str) -> None:
        retention = Retention([RetentionRange(priority, 5_000)], session)
        assert self.memory.retain("acme", retention, array("I", tokens), [Span(0, ACME)]) <= len(tokens) // BLOCK

    @rule(seconds=st.sampled_from([1.0, 10.0]))
    def time_passes(self, seconds: float) -> None:
        self.clock.now += seconds
        quiet(self.memory)

    @rule(rate=st.sampled_from([0.0, 1.0, 1e12]))
    def the_engine_measures(self, rate: float) -> None:
        """At an absurd rate nothing is worth loading."""
        self.memory.reuse.prefill_tps = rate

    @rule(data=st.data())
    def a_file_goes_bad(self, data: st.DataObject) -> None:
        quiet(self.memory)
        if files := sorted(Path(self.folder.name).iterdir()):
            damage(data.draw(st.sampled_from(files)))

    @rule()
    def only_what_the_tree_knows_is_on_disk(self) -> None:
        quiet(self.memory)
        known = {block.hash.hex() for block in self.memory.snapshot() if block.tier == Tier.DISK}
        assert {path.stem for path in Path(self.folder.name).iterdir()} == known

    @rule()
    def clear(self) -> None:
        self.memory.clear()
        if not self.running:
            assert len(self.memory.tree) == 0

    @precondition(lambda self: not self.running)
    @rule()
    def restart(self) -> None:
        """What was on disk is there again, unless its file went bad; what the events say starts anew."""
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
        return tiered(
            Path(self.folder.name), layout=self.layout, blocks=self.blocks, clock=self.clock, copier=LateCopier()
        )

    def heard(self) -> None:
        self.events += self.memory.take_events()
        self.stored |= {hash_ for event in self.events if isinstance(event, BlockStored) for hash_ in event.hashes}

    def teardown(self) -> None:
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
