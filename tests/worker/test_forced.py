"""Forced tokens == token by token: what a grammar leaves no choice about may come at once, computed in one chunk."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.worker.rig import BLOCK, Rig, ask
from tests.worker.test_grammar import PERSON, lark
from worker.grammar import GrammarCompiler, LLGrammar
from worker.model import Model
from worker.tokenizer import Vocabulary
from worker.wire import Cached, Sampling

TEXTS = [lark(PERSON), 'start: "go " /[ab ]{4,40}/ " and stop here" /[.!]/', 'start: ("yes" | "no") ", that is all"']


class OneByOne:
    """The same grammar, which forces nothing: of what it would have forced it allows the first token alone."""

    def __init__(self, inner: LLGrammar) -> None:
        self._inner = inner
        self.steps_forced = 0

    def accept(self, token: int) -> bool:
        return self._inner.accept(token)

    def allowed(self) -> NDArray[np.bool_]:
        allowed = self._inner.allowed()
        forced = self._inner.forced()
        if forced:
            self.steps_forced += 1
            allowed = np.zeros_like(allowed)
            allowed[forced[0]] = True
        return allowed

    def permits(self, token: int) -> bool:
        return self._inner.permits(token)

    def forced(self) -> list[int]:
        return []

    def follow(self, tokens: list[int]) -> list[int]:
        return self._inner.follow(tokens)

    def rollback(self, count: int) -> None:
        self._inner.rollback(count)

    def fork(self) -> "OneByOne":
        return OneByOne(self._inner.fork())

    @property
    def is_done(self) -> bool:
        return self._inner.is_done


@pytest.fixture(scope="module")
def compiler(tiny_vocabulary: Vocabulary) -> GrammarCompiler:
    return GrammarCompiler(tiny_vocabulary)


@settings(max_examples=30)
@given(
    prompt=st.integers(1, 20),
    budget=st.integers(4, 40),
    grammar=st.sampled_from(TEXTS),
    sampling=st.builds(
        Sampling,
        max_tokens=st.integers(1, 40),
        temperature=st.sampled_from([0.0, 1.0]),
        seed=st.integers(0, 9),
        presence_penalty=st.sampled_from([0.0, 1.0]),
        repetition_penalty=st.sampled_from([1.0, 1.3]),
        stop=st.sampled_from([[], ["stop"], ["name"]]),
        min_tokens=st.sampled_from([0, 3]),
    ),
)
def test_forced_tokens_are_what_they_are_one_by_one(
    tiny_model: Model,
    tiny_vocabulary: Vocabulary,
    compiler: GrammarCompiler,
    prompt: int,
    budget: int,
    grammar: str,
    sampling: Sampling,
) -> None:
    request = ask(range(10, 10 + prompt), sampling=sampling)
    at_once = Rig(tiny_model, tiny_vocabulary, budget=budget)
    reply = at_once.complete(request, [compiler.compile(grammar)])
    plain = Rig(tiny_model, tiny_vocabulary).complete(request, [OneByOne(compiler.compile(grammar))])
    assert (reply.tokens(), reply.text(), reply.finish()) == (plain.tokens(), plain.text(), plain.finish())
    at_once.check_idle()


def test_forced_tokens_save_steps(tiny_model: Model, tiny_vocabulary: Vocabulary, compiler: GrammarCompiler) -> None:
    text, sampling = TEXTS[2], Sampling(max_tokens=40, temperature=0)
    at_once, step_by_step = Rig(tiny_model, tiny_vocabulary), Rig(tiny_model, tiny_vocabulary)
    reply = at_once.complete(ask([5, 6], sampling=sampling), [compiler.compile(text)])
    slow = OneByOne(compiler.compile(text))
    assert step_by_step.complete(ask([5, 6], sampling=sampling), [slow]).tokens() == reply.tokens()
    assert slow.steps_forced >= 3
    assert at_once.engine.counters.steps <= step_by_step.engine.counters.steps - slow.steps_forced + 1


def test_what_is_forced_at_the_beginning_is_computed_with_the_prompt(
    tiny_model: Model, tiny_vocabulary: Vocabulary, compiler: GrammarCompiler
) -> None:
    rig = Rig(tiny_model, tiny_vocabulary)
    forced = compiler.compile(TEXTS[1]).forced()
    assert len(forced) > 1
    reply = rig.submit(ask([5, 6], sampling=Sampling(max_tokens=40, temperature=0)), [compiler.compile(TEXTS[1])])
    rig.engine.step()
    assert reply.tokens()[: len(forced)] == forced
    assert reply.text().startswith("go")
    assert rig.engine.counters.steps == 1
    (sequence,) = rig.scheduler.running
    assert sequence.computed == 2 + len(forced) - 1
    rig.run()
    assert reply.end.prompt_tokens == 2


def test_nothing_of_it_is_sent_or_counted_when_the_prompt_was_not_computed(
    tiny_model: Model, tiny_vocabulary: Vocabulary, compiler: GrammarCompiler
) -> None:
    rig = Rig(tiny_model, tiny_vocabulary)
    late = ask([5, 6], deadline_ms=0, sampling=Sampling(max_tokens=40, temperature=0, stop=["gone"]))
    reply = rig.complete(late, [compiler.compile(TEXTS[1])])
    assert reply.text() == ""  # nor what might become a stop string
    assert (reply.finish().reason, reply.finish().completion_tokens, reply.tokens()) == ("deadline", 0, [])
    assert rig.engine.counters.generated_tokens == 0
    rig.check_idle()


def test_a_stop_string_in_it_ends_the_reply(
    tiny_model: Model, tiny_vocabulary: Vocabulary, compiler: GrammarCompiler
) -> None:
    rig = Rig(tiny_model, tiny_vocabulary)
    sampling = Sampling(max_tokens=40, temperature=0, stop=["that"])
    text = 'start: "yes, that is all" /[.!]/'
    reply = rig.complete(ask([5, 6], sampling=sampling), [compiler.compile(text)])
    assert (reply.text(), reply.finish().reason, reply.finish().stop) == ("yes, ", "stop", "that")
    rig.check_idle()


def test_of_what_is_cached_no_more_than_the_prompt_is_told(
    tiny_model: Model, tiny_vocabulary: Vocabulary, compiler: GrammarCompiler
) -> None:
    """The reply before had the same beginning, and with it a block that ends behind the prompt."""
    rig = Rig(tiny_model, tiny_vocabulary)
    text = f'start: "{"forced to say this at length, " * 3}" /[xyz]/'
    prompt = [*range(10, 10 + BLOCK), 5, 6]
    for _ in range(2):
        reply = rig.complete(ask(prompt, sampling=Sampling(max_tokens=80, temperature=0)), [compiler.compile(text)])
    assert reply.start.cached == Cached(device=BLOCK, partial=2)
    assert rig.engine.cached_tokens == BLOCK
