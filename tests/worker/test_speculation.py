"""Speculation: speculative == plain under random schedules, and drafts only where they pay."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cacheplane.identity import BlockChain
from cacheplane.wire import BlockStored
from tests.worker.rig import ACME, BLOCK, Reply, Rig, ask
from tests.worker.test_grammar import PERSON, lark
from worker.grammar import Grammar, GrammarCompiler
from worker.model import Model
from worker.ngrams import NgramIndex
from worker.speculation import Speculator
from worker.tokenizer import Vocabulary
from worker.wire import GenerateRequest, Sampling

LOOP = [10, 11, 12, 13, 14, 15, 16] * 4
GRAMMARS = [None, None, lark(PERSON), 'start: "go " /[ab ]{4,40}/ " and stop here" /[.!]/', "start: /[a-c]{1,30}/"]


def eager(most: int = 5) -> Speculator:
    """Drafts after every token that has been seen before, whether it pays or not."""
    return Speculator(most, adaptive=False, index=lambda: NgramIndex((2, 1)))


@pytest.fixture(scope="module")
def compiler(tiny_vocabulary: Vocabulary) -> GrammarCompiler:
    return GrammarCompiler(tiny_vocabulary)


samplings = st.builds(
    Sampling,
    max_tokens=st.integers(1, 24),
    temperature=st.sampled_from([0.0, 0.0, 0.3, 1.0]),
    top_p=st.sampled_from([1.0, 0.9]),
    top_k=st.sampled_from([0, 5]),
    seed=st.integers(0, 9),
    presence_penalty=st.sampled_from([0.0, 1.0]),
    repetition_penalty=st.sampled_from([1.0, 1.2]),
    logit_bias=st.sampled_from([{}, {"12": 8.0, "13": 8.0}]),
    stop=st.sampled_from([[], ["go"], ["e", "ab"]]),
    logprobs=st.sampled_from([None, None, 3]),
    ignore_eos=st.booleans(),
    min_tokens=st.sampled_from([0, 3]),
)
requests = st.tuples(st.integers(1, 28), samplings, st.integers(0, len(GRAMMARS) - 1), st.integers(0, 6))


def play(rig: Rig, compiler: GrammarCompiler, plans: Sequence[tuple[int, Sampling, int, int]]) -> list[Reply]:
    """Submits each request at its step, preempts one now and then, and runs all to the end."""
    replies: dict[int, Reply] = {}
    for step in range(400):
        for number, (size, sampling, grammar, arrives) in enumerate(plans):
            if arrives == step:
                replies[number] = rig.submit(*_asked(compiler, size, sampling, grammar))
        if step % 7 == 5 and rig.scheduler.running:
            rig.scheduler.preempt(rig.scheduler.running[0])
        if not rig.engine.step() and step > 6:
            break
    return [replies[number] for number in range(len(plans))]


def _asked(
    compiler: GrammarCompiler, size: int, sampling: Sampling, grammar: int
) -> tuple[GenerateRequest, list[Grammar]]:
    text = GRAMMARS[grammar]
    return ask(LOOP[:size], sampling=sampling), [] if text is None else [compiler.compile(text)]


@settings(max_examples=15)
@given(
    plans=st.lists(requests, min_size=1, max_size=4),
    slots=st.integers(1, 4),
    budget=st.integers(8, 40),
    most=st.integers(1, 7),
)
def test_speculative_is_plain(
    tiny_model: Model,
    tiny_vocabulary: Vocabulary,
    compiler: GrammarCompiler,
    plans: list[tuple[int, Sampling, int, int]],
    slots: int,
    budget: int,
    most: int,
) -> None:
    rig = Rig(tiny_model, tiny_vocabulary, slots=slots, budget=budget, speculator=eager(most))
    for (size, sampling, grammar, _), reply in zip(plans, play(rig, compiler, plans), strict=True):
        alone = Rig(tiny_model, tiny_vocabulary, slots=1)
        plain = alone.complete(*_asked(compiler, size, sampling, grammar))
        reply.check()
        assert (reply.tokens(), reply.text(), reply.finish()) == (plain.tokens(), plain.text(), plain.finish())
        for one, other in zip(reply.logprobs(), plain.logprobs(), strict=True):
            assert one.token == other.token
            assert one.logprob == pytest.approx(other.logprob, abs=1e-5)
    rig.check_idle()


def repeating(max_tokens: int = 60) -> Sampling:
    """Says one token over and over, which is what a draft is best at."""
    return Sampling(max_tokens=max_tokens, temperature=0, logit_bias={"12": 100}, ignore_eos=True)


def test_drafts_that_are_accepted_save_steps_and_are_counted(tiny_model: Model, tiny_vocabulary: Vocabulary) -> None:
    rig = Rig(tiny_model, tiny_vocabulary, speculator=eager(5))
    reply = rig.complete(ask([5, 12], sampling=repeating()))
    counters = rig.engine.counters
    assert len(reply.tokens()) == counters.generated_tokens == 60
    assert counters.steps <= 60 // 6 + 4
    assert counters.accepted_tokens == counters.drafted_tokens == 60 - counters.steps
    rig.check_idle()


def test_blocks_are_stored_of_accepted_tokens_only(tiny_model: Model, tiny_vocabulary: Vocabulary) -> None:
    """A block of a wrong draft would be found by whoever sends its tokens."""
    rig = Rig(tiny_model, tiny_vocabulary, speculator=eager(7))
    reply = rig.complete(ask(LOOP, sampling=Sampling(max_tokens=60, temperature=1.5, seed=1, ignore_eos=True)))
    stored = [digest for event in rig.events if isinstance(event, BlockStored) for digest in event.hashes]
    assert tuple(stored) == BlockChain.of([*LOOP, *reply.tokens()][:-1], ACME, BLOCK).hashes
    assert rig.engine.counters.drafted_tokens > rig.engine.counters.accepted_tokens


def test_drafts_take_what_of_a_step_nobody_else_wants(tiny_model: Model, tiny_vocabulary: Vocabulary) -> None:
    rig = Rig(tiny_model, tiny_vocabulary, slots=2, budget=16, speculator=eager(7))
    rig.submit(ask([5, 12], sampling=repeating(100)))
    for _ in range(4):
        rig.engine.step()
    prompt = rig.submit(ask([7] * 90, sampling=repeating(1)))
    rig.scheduler.admit()
    batch = rig.scheduler.next_batch()
    assert batch is not None
    assert sorted(map(len, batch.drafts)) == [0, 0]
    assert sum(row.count for row in batch.rows) == 16
    rig.run()
    prompt.check()
    rig.check_idle()


def test_without_speculation_there_are_no_drafts(tiny_model: Model, tiny_vocabulary: Vocabulary) -> None:
    rig = Rig(tiny_model, tiny_vocabulary, speculator=Speculator(0))
    rig.complete(ask([5, 12], sampling=repeating()))
    assert (rig.engine.counters.drafted_tokens, rig.engine.counters.steps) == (0, 60)


def test_drafts_stop_where_they_cost_more_than_they_bring(tiny_model: Model, tiny_vocabulary: Vocabulary) -> None:
    """A worker whose draft tokens take as long as steps gains nothing by any."""
    speculator = Speculator(5, index=lambda: NgramIndex((1,)))
    rig = Rig(tiny_model, tiny_vocabulary, speculator=speculator)
    speculator.times.observe(1, 0, 0, 0.010)
    speculator.times.observe = lambda *_: None  # type: ignore[method-assign]
    speculator.times._token = 0.010
    rig.complete(ask([5, 12], sampling=repeating()))
    assert (rig.engine.counters.drafted_tokens, rig.engine.counters.steps) == (0, 60)
