"""KV memory: what is found again, what is stored once, what is left behind."""

from array import array

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from cacheplane.identity import BlockChain, Namespace, Span
from cacheplane.wire import BlockRemoved, BlockStored, Event
from tests.worker.kv.layouts import HalfSlots, LayoutClass, TorchSlots
from tests.worker.kv.ledger import listed, replayed
from tests.worker.kv.sequences import BLOCK, PUBLIC, Running, Sequences, check_slot, compute, live, memory_of, prompts
from tests.worker.rig import ACME, GLOBEX
from worker.kv import PagedLayout, SlotLayout


class IndexIsCache(Sequences):
    """Sequences come, fork, grow, step back and go under a pool that is too small for them."""

    def __init__(self) -> None:
        super().__init__(memory_of(self.layout, slots=3, blocks=6))
        self.index: dict[bytes, bytes | None] = {}
        self.events: list[Event] = []

    @rule(
        tokens=prompts,
        namespace=st.sampled_from([ACME, GLOBEX]),
        barrier=st.sampled_from([None, None, 4, 8]),
        store=st.sampled_from([True, True, True, False]),
    )
    def open(self, tokens: list[int], namespace: Namespace, barrier: int | None, store: bool) -> None:
        spans = [Span(0, namespace), *([] if barrier is None else [Span(barrier, GLOBEX)])]
        holding = self.memory.open(array("I", tokens), spans, store=store)
        if holding is None:
            assert self.running
            assert len(self.running) == self.memory.slots.total or issubclass(self.layout, PagedLayout)
            return
        assert holding.reused - holding.cached.partial == holding.cached.device
        assert holding.reused < len(tokens)
        check_slot(self.memory, holding, tokens, holding.reused)
        self.running.append(Running(tokens, spans, holding, holding.reused, store))

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        one = data.draw(st.sampled_from(self.running))
        self.running.remove(one)
        self.memory.keep_tail(one.holding, array("I", one.tokens), one.computed)
        self.memory.close(one.holding)

    @rule(tokens=prompts, namespace=st.sampled_from([ACME, GLOBEX]))
    def release(self, tokens: list[int], namespace: Namespace) -> None:
        spans = [Span(0, namespace)]
        assert self.memory.release("acme", "", array("I", tokens), spans) <= len(tokens) // BLOCK

    @invariant()
    def the_events_tell_exactly_the_tree(self) -> None:
        self.events += self.memory.take_events()
        assert replayed(self.events) == listed(self.memory.snapshot())

    @invariant()
    def the_books_balance(self) -> None:
        self.memory.check()
        for one in self.running:
            chain = BlockChain.of(one.tokens[: one.holding.stored * BLOCK], one.spans, BLOCK)
            assert one.holding.node.digest == (chain.hashes[-1] if chain.hashes else b"")


class OverSlots(IndexIsCache):
    layout = SlotLayout


class OverTorchSlots(IndexIsCache):
    layout = TorchSlots


class OverHalfSlots(IndexIsCache):
    layout = HalfSlots


class OverPages(IndexIsCache):
    layout = PagedLayout


for machine, examples in ((OverSlots, 40), (OverTorchSlots, 10), (OverHalfSlots, 40), (OverPages, 40)):
    machine.TestCase.settings = settings(max_examples=examples, stateful_step_count=40, deadline=None)
TestOverSlots, TestOverTorchSlots = OverSlots.TestCase, OverTorchSlots.TestCase
TestOverHalfSlots, TestOverPages = OverHalfSlots.TestCase, OverPages.TestCase


def test_a_prefix_is_reused_but_the_last_token_is_always_computed(layout: LayoutClass) -> None:
    memory = memory_of(layout)
    tokens = list(range(12))
    assert live(memory, tokens) == 0
    assert live(memory, tokens) == 8
    assert live(memory, [*tokens, 12]) == 12
    assert live(memory, [*tokens[:8], 99, 99]) == 8
    assert live(memory, [99, *tokens[1:]]) == 0


def test_namespaces_have_nothing_in_common(layout: LayoutClass) -> None:
    memory = memory_of(layout)
    live(memory, list(range(9)))
    assert live(memory, list(range(9)), [Span(0, GLOBEX)]) == 0
    assert live(memory, list(range(9)), [Span(0, GLOBEX)]) == 8


def test_a_barrier_shares_what_is_before_it_and_parts_what_is_behind(layout: LayoutClass) -> None:
    memory = memory_of(layout, blocks=12)
    tokens = list(range(13))
    split = [Span(0, ACME), Span(8, GLOBEX)]
    assert live(memory, tokens, split) == 0
    assert live(memory, tokens, split) == 12
    assert live(memory, tokens, PUBLIC) == 8
    assert live(memory, tokens, [Span(0, ACME), Span(8, Namespace(b"x" * 32))]) == 8
    assert live(memory, tokens, [Span(0, ACME), Span(8, ACME)]) == 8
    assert live(memory, tokens[8:], [Span(0, GLOBEX)]) == 0


@pytest.mark.parametrize("spans", [PUBLIC, [Span(0, GLOBEX), Span(8, ACME)]])
def test_block_hashes_are_those_of_the_chain(layout: LayoutClass, spans: list[Span]) -> None:
    memory = memory_of(layout)
    tokens = list(range(100, 118))
    live(memory, tokens, spans)
    stored = [digest for event in memory.take_events() if isinstance(event, BlockStored) for digest in event.hashes]
    assert tuple(stored) == BlockChain.of(tokens, spans, BLOCK).hashes


def test_blocks_stored_in_one_go_are_one_event(layout: LayoutClass) -> None:
    memory = memory_of(layout)
    live(memory, list(range(12)))
    assert [type(event) for event in memory.take_events()] == [BlockStored]
    live(memory, [*range(8), 77, 77, 77, 77])
    (event,) = memory.take_events()
    assert isinstance(event, BlockStored)
    assert (event.parent, len(event.hashes)) == (BlockChain.of(range(8), ACME, BLOCK).hashes[-1], 1)


def test_the_least_recently_used_prefix_makes_room(layout: LayoutClass) -> None:
    memory = memory_of(layout, blocks=2)
    live(memory, [1] * 5)
    live(memory, [2] * 5)
    assert live(memory, [1] * 5) == 4
    live(memory, [3] * 5)
    assert live(memory, [1] * 5) == 4
    assert live(memory, [2] * 5) == 0
    removed = [event for event in memory.take_events() if isinstance(event, BlockRemoved)]
    assert {event.reason for event in removed} == {"evicted"}


def test_a_released_prefix_makes_room_first(layout: LayoutClass) -> None:
    memory = memory_of(layout, blocks=2)
    live(memory, [1] * 5)
    live(memory, [2] * 5)
    assert memory.release("acme", "", array("I", [2] * 5), PUBLIC) == 1
    live(memory, [3] * 5)
    assert live(memory, [1] * 5) == 4
    assert live(memory, [2] * 5) == 0


def test_over_slots_a_sequence_goes_on_without_storing_when_every_block_is_held() -> None:
    memory = memory_of(SlotLayout, slots=2, blocks=2)
    tokens, others = list(range(8)), list(range(50, 66))
    first, second = memory.open(array("I", tokens), PUBLIC), memory.open(array("I", others), PUBLIC)
    assert first is not None
    assert second is not None
    compute(memory, first, tokens, 0, 8)
    memory.extend(first, array("I", tokens), 8)
    compute(memory, second, others, 0, 16)
    memory.extend(second, array("I", others), 16)
    assert (first.stored, second.stored, second.storing) == (2, 0, False)
    check_slot(memory, second, others, 16)
    memory.close(first)
    memory.extend(second, array("I", others), 16)
    assert second.stored == 0  # a later block would have no parent
    memory.close(second)
    memory.check()


def test_over_pages_a_sequence_starts_only_when_there_is_room_for_all_of_it_and_for_the_others_to_grow() -> None:
    memory = memory_of(PagedLayout, blocks=4)
    tokens, others = array("I", range(7)), array("I", range(50, 57))
    first = memory.open(tokens, PUBLIC)
    assert first is not None
    assert memory.pool.free == 3
    assert memory.open(array("I", range(50, 58)), PUBLIC) is None
    second = memory.open(others, PUBLIC)
    assert second is not None
    assert memory.prepare(first, 7, 9)
    assert not memory.prepare(second, 7, 9)
    memory.close(first)
    assert memory.prepare(second, 7, 9)
    memory.close(second)
    assert memory.pool.free == memory.pool.total
    memory.check()


def test_over_pages_a_hit_copies_nothing_and_a_full_block_stays_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.kv.pages.copy_block", None)
    memory = memory_of(PagedLayout, blocks=8)
    assert live(memory, [*range(8), 1, 2]) == 0
    assert live(memory, [*range(8), 5, 6, 7]) == 8
    assert live(memory, [*range(8), 9, 9]) == 8


def test_over_pages_two_that_computed_the_same_block_share_it_from_then_on() -> None:
    memory = memory_of(PagedLayout)
    tokens = array("I", range(6))
    first, second = memory.open(tokens, PUBLIC), memory.open(tokens, PUBLIC)
    assert first is not None
    assert second is not None
    for holding in (first, second):
        compute(memory, holding, tokens, 0, 6)
    assert memory.pool.free == 3
    for holding in (first, second):
        memory.extend(holding, tokens, 6)
    assert memory.pool.free == 4
    assert memory.pool.holders(first.node.block) == 2
    check_slot(memory, second, tokens, 6)
    memory.check()


def test_a_prefix_that_is_computed_again_counts_as_used() -> None:
    memory = memory_of(SlotLayout, blocks=3)
    tokens = array("I", [1] * 5)
    one, other = memory.open(tokens, PUBLIC), memory.open(tokens, PUBLIC)
    assert one is not None
    assert other is not None
    for holding in (one, other):
        compute(memory, holding, tokens, 0, 5)
        memory.extend(holding, tokens, 5)
        memory.close(holding)
        if holding is one:
            live(memory, [2] * 5)
    live(memory, [3] * 5)
    live(memory, [4] * 5)
    assert live(memory, [1] * 5) == 4
    assert live(memory, [2] * 5) == 0


def test_two_sequences_that_compute_the_same_prefix_store_it_once(layout: LayoutClass) -> None:
    memory = memory_of(layout)
    tokens = array("I", range(8))
    one, other = memory.open(tokens, PUBLIC), memory.open(tokens, PUBLIC)
    assert one is not None
    assert other is not None
    for holding in (one, other):
        compute(memory, holding, tokens, 0, 8)
        memory.extend(holding, tokens, 8)
    assert one.node is other.node
    for holding in (one, other):
        memory.close(holding)
    assert memory.pool.free == memory.pool.total - 2


def test_without_store_nothing_is_left_behind_but_a_prefix_is_still_used(layout: LayoutClass) -> None:
    memory = memory_of(layout)
    tokens = array("I", range(9))
    holding = memory.open(tokens, PUBLIC, store=False)
    assert holding is not None
    compute(memory, holding, tokens, 0, 9)
    memory.extend(holding, tokens, 9)
    memory.close(holding)
    assert len(memory.tree) == 0
    live(memory, tokens)
    warm = memory.open(tokens, PUBLIC, store=False)
    assert warm is not None
    assert warm.reused == 8


def test_books_that_do_not_balance_are_found(layout: LayoutClass) -> None:
    memory = memory_of(layout)
    memory.pool.ready(memory.pool.take() or 0)
    with pytest.raises(RuntimeError, match="blocks in the tree and blocks in use differ"):
        memory.check()
