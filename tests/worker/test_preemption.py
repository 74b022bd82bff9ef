"""A sequence that loses its slot: who it is, what it costs, and that its reply does not show it."""

from collections.abc import Sequence as Tokens
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worker.kv.layouts import LAYOUTS, LayoutClass
from tests.worker.rig import BLOCK, Reply, Rig, ask, greedy
from worker.claims import PROGRESS
from worker.grammar import Grammar, GrammarCompiler
from worker.kv import PagedLayout
from worker.model import Model
from worker.sequence import Sequence
from worker.tokenizer import Vocabulary
from worker.wire import Sampling

GRAMMAR = 'start: (LETTER ": as it is written, ")+\nLETTER: /[a-z]/'


def running(rig: Rig) -> list[str]:
    rig.scheduler.admit()
    return [sequence.job.id for sequence in rig.scheduler.running]


def reply_of(rig: Rig, sampling: Sampling, grammars: Tokens[Grammar], preempted_at: set[int]) -> Reply:
    """A reply whose sequence loses its slot before each of the steps given, to take it again at once."""
    reply = rig.submit(ask(list(range(10, 50)), sampling=sampling), grammars)
    step = 0
    while rig.scheduler.jobs:
        if step in preempted_at and rig.scheduler.running:
            rig.scheduler.preempt(rig.scheduler.running[0])
        rig.engine.step()
        step += 1
    reply.check()
    rig.check_idle()
    return reply


@settings(max_examples=25)
@given(
    steps=st.sets(st.integers(1, 40), min_size=1, max_size=8),
    sampling=st.sampled_from(
        [
            Sampling(max_tokens=40, temperature=0, ignore_eos=True, repetition_penalty=1.2),
            Sampling(max_tokens=40, temperature=1.3, seed=11, ignore_eos=True, frequency_penalty=0.5),
            Sampling(max_tokens=60, temperature=1.0, seed=5, stop=["q"]),
        ]
    ),
    grammar=st.sampled_from([None, GRAMMAR]),
    layout=st.sampled_from(LAYOUTS),
    blocks=st.sampled_from([2, 64]),
)
def test_preempted_is_undisturbed(
    tiny_model: Model,
    tiny_vocabulary: Vocabulary,
    steps: set[int],
    sampling: Sampling,
    grammar: str | None,
    layout: LayoutClass,
    blocks: int,
) -> None:
    """Also where its blocks leave the device meanwhile, or there are hardly enough for it."""
    if layout is PagedLayout:
        blocks = max(blocks, (40 + 60) // BLOCK + 1)
    compiler = GrammarCompiler(tiny_vocabulary)
    replies = []
    for preempted_at in (set[int](), steps):
        rig = Rig(tiny_model, tiny_vocabulary, blocks=blocks, budget=16, layout=layout)
        grammars = [] if grammar is None else [compiler.compile(grammar)]
        replies.append(reply_of(rig, sampling, grammars, preempted_at))
    assert replies[1].tokens() == replies[0].tokens()
    assert replies[1].text() == replies[0].text()
    assert replies[1].finish() == replies[0].finish()


def test_a_preempted_sequence_goes_on_by_a_hit(rig: Rig) -> None:
    rig.submit(ask(list(range(10, 110)), sampling=greedy(50)))
    for _ in range(20):
        rig.engine.step()
    sequence = rig.scheduler.running[0]
    known = len(sequence.tokens)
    rig.scheduler.preempt(sequence)
    rig.engine.step()
    assert sequence.holding is not None
    assert sequence.holding.reused == (known - 1) // 8 * 8
    rig.run()
    rig.check_idle()


def test_a_single_request_gets_a_slot_from_a_tag_that_holds_all(rig: Rig) -> None:
    replies = [rig.submit(ask([10 + number] * 60, tag="acme", sampling=greedy(20))) for number in range(6)]
    for _ in range(12):
        rig.engine.step()
    assert {sequence.job.tag for sequence in rig.scheduler.running} == {"acme"}
    quiet = rig.submit(ask([9] * 4, tag="globex"))
    rig.engine.step()
    assert quiet.tokens()
    rig.run()
    for reply in [*replies, quiet]:
        reply.check()
    rig.check_idle()


def test_the_youngest_of_the_lowest_priority_loses_its_slot_and_is_first_to_get_it_back(rig: Rig) -> None:
    for number, priority in enumerate((50, 0, 0, 50)):
        rig.submit(ask([10 + number] * 4, request_id=f"r{number}", tag="acme", priority=priority, sampling=greedy(90)))
    rig.engine.step()
    rig.submit(ask([9], request_id="quiet", tag="globex", sampling=greedy(3)))
    assert set(running(rig)) == {"r0", "r1", "r3", "quiet"}
    rig.submit(ask([7], request_id="late", tag="acme", sampling=greedy(3), priority=0))
    while "quiet" in running(rig):
        rig.engine.step()
    assert set(running(rig)) == {"r0", "r1", "r3", "r2"}
    rig.run()
    rig.check_idle()


def test_what_stores_nothing_is_preempted_last(rig: Rig) -> None:
    for number in range(4):
        rig.submit(ask([10 + number] * 9, request_id=f"r{number}", tag="acme", store=number == 0, sampling=greedy(9)))
    rig.engine.step()
    rig.submit(ask([9], request_id="quiet", tag="globex"))
    assert set(running(rig)) == {"r1", "r2", "r3", "quiet"}
    rig.run()
    rig.check_idle()


def test_within_a_tag_only_priority_preempts(
    tiny_model: Model, tiny_vocabulary: Vocabulary, layout: LayoutClass, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A priority of one more is worth a second: here everything happens within less."""
    clock = count(1000.0, 0.001)
    monkeypatch.setattr("worker.sequence.time.monotonic", lambda: next(clock))
    rig = Rig(tiny_model, tiny_vocabulary, slots=1, layout=layout)
    rig.submit(ask([8] * 9, request_id="running", sampling=greedy(30)))
    rig.engine.step()
    rig.submit(ask([7], request_id="equal"))
    assert running(rig) == ["running"]
    rig.submit(ask([6], request_id="urgent", priority=51))
    assert running(rig) == ["urgent"]
    rig.run()
    rig.check_idle()


def test_one_that_has_waited_long_enough_is_not_preempted_by_priority(
    tiny_model: Model, tiny_vocabulary: Vocabulary, layout: LayoutClass, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(tiny_model, tiny_vocabulary, slots=1, layout=layout)
    clock = [1000.0]
    monkeypatch.setattr("worker.sequence.time.monotonic", lambda: clock[0])
    rig.submit(ask([8] * 9, request_id="patient", priority=0, sampling=greedy(30)))
    rig.engine.step()
    clock[0] += 101
    rig.submit(ask([7], request_id="urgent", priority=100))
    assert running(rig) == ["patient"]
    rig.run()


def test_tags_that_are_more_than_the_slots_take_turns(
    tiny_model: Model, tiny_vocabulary: Vocabulary, layout: LayoutClass
) -> None:
    rig = Rig(tiny_model, tiny_vocabulary, slots=1, budget=16, layout=layout)
    long = rig.submit(ask([8] * 9, tag="acme", sampling=greedy(200)))
    rig.engine.step()
    short = rig.submit(ask([9] * 9, tag="globex"))
    while len(short.tokens()) < 4:
        rig.engine.step()
    assert len(long.tokens()) < 50
    rig.run()
    assert rig.scheduler.work.preemptions == 1
    for reply in (long, short):
        reply.check()
    rig.check_idle()


@settings(max_examples=15)
@given(
    requests=st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(1, 90), st.integers(1, 30), st.integers(0, 12)),
        min_size=2,
        max_size=9,
    ),
    slots=st.integers(1, 3),
    layout=st.sampled_from(LAYOUTS),
)
def test_nobody_is_preempted_again_before_it_got_further(
    tiny_model: Model,
    tiny_vocabulary: Vocabulary,
    requests: list[tuple[str, int, int, int]],
    slots: int,
    layout: LayoutClass,
) -> None:
    rig = Rig(tiny_model, tiny_vocabulary, slots=slots, budget=16, layout=layout)
    furthest: dict[Sequence, int] = {}
    preempt = rig.scheduler.preempt

    def noted(sequence: Sequence) -> None:
        # Who has not even begun in its slot loses nothing, and does not count.
        if sequence.stay:
            assert sequence.furthest - furthest.get(sequence, -PROGRESS) >= PROGRESS
            furthest[sequence] = sequence.furthest
        preempt(sequence)

    rig.scheduler.preempt = noted  # type: ignore[method-assign]
    for step in range(600):
        for number, (tag, size, reply, arrives) in enumerate(requests):
            if arrives == step:
                priority = 10 * (number % 3)
                rig.submit(ask([10 + number] * size, tag=tag, sampling=greedy(reply), priority=priority))
        if not rig.engine.step() and step > 12:
            break
    rig.check_idle()
