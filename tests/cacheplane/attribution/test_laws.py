"""Laws of the whole: it adds up whatever happens, forgets in bounds, and tells no tenant of another."""

import random
import sys
import tracemalloc
from types import FrameType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cacheplane.attribution import Origin, Outlook, Part, Reason, Segment
from cacheplane.attribution.marks import mark_all
from cacheplane.attribution.memory import Memory
from cacheplane.attribution.sketch import Sketch, sketch
from cacheplane.attribution.strangers import Strangers
from cacheplane.placement import NoWorkerError
from cacheplane.wire import Tier
from gateway.chat.messages import Message
from tests.cacheplane.attribution.prompts import ANSWER, MORE, OTHER, QUESTION, SYSTEM, TOOLS, said
from tests.cacheplane.attribution.world import Told, World

CLOCKED = [f"Now: {hour}:00. {SYSTEM}" for hour in (9, 10)]
PROMPTS = [
    said(QUESTION),
    said(QUESTION, ANSWER, MORE),
    said(OTHER, system=CLOCKED[0]),
    said(OTHER, system=CLOCKED[1]),
    [Message("user", "x")],
    said(QUESTION.upper(), ANSWER, MORE, ANSWER, OTHER),
]
STEPS = st.one_of(
    st.tuples(
        st.just("ask"),
        st.sampled_from(PROMPTS),
        st.sampled_from([(), TOOLS, TOOLS[::-1]]),
        st.sampled_from(["acme", "globex"]),
        st.booleans(),
    ),
    st.tuples(st.sampled_from(["evict", "clear", "leave", "offload", "mute", "fail", "rotate", "restart"])),
)


class Deeds:
    """What may happen between two requests."""

    def __init__(self, world: World) -> None:
        self._world = world

    def do(self, deed: str, name: str) -> None:
        getattr(self, deed)(name)

    def evict(self, name: str) -> None:
        self._world.evict(name, 7)

    def clear(self, name: str) -> None:
        self._world.clear(name)

    def leave(self, name: str) -> None:
        self._world.leave(name)
        self._world.join(name)

    def offload(self, name: str) -> None:
        self._world.offload(name, Tier.HOST)

    def mute(self, name: str) -> None:
        self._world.caches[name].mute ^= True

    def fail(self, name: str) -> None:
        self._world.fleet.failed(name, self._world.now)

    def rotate(self, _name: str) -> None:
        self._world.epochs["acme"] = self._world.epochs.get("acme", 0) + 1

    def restart(self, _name: str) -> None:
        self._world.attribution = self._world.fresh()


@settings(max_examples=40)
@given(st.lists(st.tuples(STEPS, st.sampled_from(["w0", "w1"])), max_size=14))
def test_reasons_add_up_whatever_happens(steps: list[Any]) -> None:
    world = World("w0", "w1", capacity=60)
    deeds = Deeds(world)
    for step, name in steps:
        if step[0] != "ask":
            deeds.do(step[0], name)
            continue
        _, messages, tools, tenant, store = step
        try:
            told = world.ask(*messages, tools=tools, tenant=tenant, store=store)
        except NoWorkerError:
            world.report("w0")
            continue
        assert told.prompt == told.cached + sum(told.misses.tokens.values())
        assert all(tokens > 0 for tokens in told.misses.tokens.values())
        change = told.misses.divergence
        assert (change is not None) == any(reason.startswith("diverged") for reason in told.reasons)
        if change is not None:
            assert told.of(change.reason) == change.tokens


@given(st.integers(0, 400), st.integers(0, 400), st.integers(0, 400), st.integers(0, 400))
def test_they_add_up_for_whatever_a_worker_and_a_decision_claim(
    cached: int, predicted: int, available: int, stranded: int
) -> None:
    world = World()
    request = world.open(*said(QUESTION))
    claimed = Outlook(predicted, available, stranded)
    tokens = world.attribution.attribute(request.sketch, request.chain, claimed, cached).tokens
    assert sum(tokens.values()) == max(0, request.told.prompt - cached)


def test_rates_and_reasons_are_told_in_the_order_in_which_the_prompt_has_them() -> None:
    world = World("w0", "w1")
    request = world.open(*said(QUESTION, ANSWER, MORE))
    misses = world.attribution.attribute(request.sketch, request.chain, Outlook(32, 64, 96), 16)
    assert list(misses.tokens.items())[:3] == [
        (Reason.PARITY, 16),
        (Reason.ROUTED_AWAY, 32),
        (Reason.WORKER_LOST, 32),
    ]


# Isolation


def seen_by_acme(*, before: bool) -> tuple[Told, Told, World]:
    """What acme is told, twice, whether or not globex has sent the same before."""
    world = World()
    for tenant in ["globex"] if before else []:
        world.ask(*said(QUESTION, ANSWER, MORE), tools=TOOLS, tenant=tenant)
    world.caches["w0"].blocks.clear()
    world.departures.drop("w0")
    world.join("w0")
    first = world.ask(*said(QUESTION, ANSWER, MORE), tools=TOOLS)
    return first, world.ask(*said(QUESTION, ANSWER, MORE, ANSWER), tools=TOOLS), world


def test_a_tenant_is_told_the_same_whatever_others_have_sent() -> None:
    alone, after = seen_by_acme(before=False), seen_by_acme(before=True)
    for one, other in zip(alone[:2], after[:2], strict=True):
        assert (one.cached, one.misses, one.template) == (other.cached, other.misses, other.template)
    assert alone[2].attribution.isolated["m"] == 0
    assert after[2].attribution.isolated["m"] == after[0].of(Reason.FIRST_SEEN)


def test_the_same_steps_are_taken_whatever_others_have_sent() -> None:
    """Line by line: how long an answer takes says nothing about what another tenant has sent."""

    def lines(theirs: list[Message]) -> list[tuple[str, int]]:
        world = World()
        world.ask(*theirs, tools=TOOLS, tenant="globex")
        request = world.open(*said(QUESTION), tools=TOOLS)
        world.attribution.isolated.clear()
        world.attribution._memory = Memory()
        taken: list[tuple[str, int]] = []

        def trace(frame: FrameType, event: str, _argument: object) -> Any:
            if "/cacheplane/attribution/" not in frame.f_code.co_filename:
                return None
            taken.append((frame.f_code.co_filename, frame.f_lineno))
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            world.attribution.attribute(request.sketch, request.chain, request.outlook, 0)
        finally:
            sys.settrace(before)
        return taken

    alone, after = lines(said(OTHER, system=MORE)), lines(said(QUESTION))
    assert alone == after
    assert len(alone) > 20


def test_content_of_several_tenants_stays_known_to_each_of_them() -> None:
    strangers, keys = Strangers(), np.arange(1, 9, dtype=np.uint64) << np.uint64(56)
    assert not strangers.meet("a", keys).any()
    assert not strangers.meet("a", keys).any()
    assert strangers.meet("b", keys).all()
    assert strangers.meet("a", keys).all()
    assert not strangers.meet("a", keys + np.uint64(100 << 48)).any()


def test_a_second_attempt_is_attributed_anew_and_counted_once() -> None:
    world = World()
    world.ask(*said(QUESTION), tenant="globex")
    request = world.open(*said(QUESTION))
    again = world.attribution.attribute(request.sketch, request.chain, request.outlook, 0)
    assert again == request.told.misses
    assert world.attribution.isolated["m"] == again.tokens[Reason.FIRST_SEEN]
    assert world.attribution._memory.recent("acme") == [request.sketch]


def test_a_worker_that_reuses_part_of_a_block_leaves_less_below_it() -> None:
    world = World()
    world.ask(*said(QUESTION))
    request = world.open(*said(QUESTION))
    part = request.told.prompt - 1
    assert world.attribution.attribute(request.sketch, request.chain, request.outlook, part).tokens == {
        Reason.BELOW_BLOCK: 1
    }


# Bounds


def made_up(source: random.Random, tenant: str, blocks: int, segments: int) -> Sketch:
    texts = [f"{tenant} {source.random()} {number}" for number in range(segments)]
    parts = [Segment(Part.SYSTEM if not n else Part.HISTORY, text, n, 1) for n, text in enumerate(texts)]
    hashes = np.frombuffer(source.randbytes(8 * blocks), np.uint64)
    marks = mark_all(parts, b"key", {})
    return sketch(Origin(tenant, "m", ("m",), 0), 16 * blocks + 1, 16, hashes, parts, marks)


def test_memory_stays_within_its_bounds_and_they_are_true() -> None:
    source = random.Random(7)
    memory = Memory(tenant_bytes=256 << 10, total_bytes=2 << 20)
    tracemalloc.start()
    try:
        for number in range(400):
            memory.remember(made_up(source, f"t{number % 40}", source.randrange(400), source.randrange(1, 90)))
            assert memory.bytes <= 2 << 20
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 0 < held < (2 << 20) * 1.15
    assert len(memory) < 40
    for tenant in {f"t{number}" for number in range(40)}:
        assert sum(entry.bytes for entry in memory.recent(tenant)) <= 256 << 10


def test_a_tenants_oldest_prompt_goes_first_and_the_least_recent_tenant() -> None:
    source = random.Random(1)
    memory = Memory(prompts=2, total_bytes=40 << 10)
    prompts = [made_up(source, "a", 4, 4) for _ in range(3)]
    for prompt in prompts:
        memory.remember(prompt)
    assert memory.recent("a") == [prompts[2], prompts[1]]
    for number in range(12):
        memory.remember(made_up(source, f"b{number}", 4, 4))
    assert memory.recent("a") == []
    assert len(memory.recent("b11")) == 1


def test_a_prompt_that_is_over_the_bound_is_not_remembered() -> None:
    memory = Memory(tenant_bytes=4 << 10)
    memory.remember(made_up(random.Random(1), "a", 1000, 3))
    assert memory.recent("a") == []
    assert memory.bytes == 0


def test_a_next_turn_takes_the_place_of_the_turn_before() -> None:
    world = World()
    for turn in (said(QUESTION), said(QUESTION, ANSWER, MORE), said(OTHER)):
        world.ask(*turn)
    world.ask(*said(QUESTION, ANSWER, MORE, ANSWER, OTHER))
    kept = world.attribution._memory.recent("acme")
    assert sorted(len(entry.marks) for entry in kept) == [3, 7]


@pytest.mark.parametrize("attribute", ["marks", "keys", "template"])
def test_nothing_that_is_kept_can_be_read(attribute: str) -> None:
    world = World()
    world.ask(*said(QUESTION), tools=TOOLS)
    (kept,) = world.attribution._memory.recent("acme")
    shown = repr(getattr(kept, attribute))
    assert not [word for word in (*QUESTION.split(), *SYSTEM.split(), "weigh") if len(word) > 4 and word in shown]


def test_the_same_template_has_one_name_in_one_tenant_and_others_elsewhere() -> None:
    world = World()
    first = world.ask(*said(QUESTION, system=CLOCKED[0]), tools=TOOLS).template
    assert world.ask(*said(OTHER, system=CLOCKED[1]), tools=TOOLS[::-1]).template == first
    assert world.ask(*said(OTHER), tools=TOOLS).template != first
    assert world.ask(*said(OTHER, system=CLOCKED[0]), tools=TOOLS, tenant="globex").template != first
    assert world.ask(Message("user", "x")).template == "plain"
