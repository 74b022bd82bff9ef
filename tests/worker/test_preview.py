"""What a reply would go on with by other logits: in its grammar, with its randomness, and without moving it."""

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.worker.rig import Rig, ask
from tests.worker.test_draft_model import beside, eager
from worker.grammar import GrammarCompiler, GrammarLimitError, LLGrammar
from worker.model import Model
from worker.preview import Preview
from worker.sampler import Logits, Sampler
from worker.tokenizer import Vocabulary
from worker.wire import Sampling

TEXT = 'start: ("yes" | "no") " and " /[a-c]{3,9}/'


@pytest.fixture(scope="module")
def compiler(tiny_vocabulary: Vocabulary) -> GrammarCompiler:
    return GrammarCompiler(tiny_vocabulary)


def logits(vocabulary: Vocabulary, seed: int) -> Logits:
    return np.random.default_rng(seed).standard_normal(len(vocabulary)).astype(np.float32)


def preview(vocabulary: Vocabulary, grammar: LLGrammar | None, least: int = 0) -> Preview:
    sampler = Sampler(Sampling(max_tokens=50, temperature=1.0, seed=7), 7, 0, set())
    return Preview(sampler, grammar, 0, set(vocabulary.stop_ids), least)


def test_it_keeps_to_the_grammar_and_takes_what_is_forced_and_the_reply_s_own_stays_put(
    tiny_vocabulary: Vocabulary, compiler: GrammarCompiler
) -> None:
    own = compiler.compile(TEXT)
    before = own.allowed().copy()
    ahead, said = preview(tiny_vocabulary, own.fork()), b""
    for seed in range(20):
        tokens = ahead.take(logits(tiny_vocabulary, seed))
        said += b"".join(tiny_vocabulary.texts[token] for token in tokens)
    assert said.startswith((b"yes and ", b"no and "))
    assert 3 <= len(said.split(b" ")[2]) <= 9
    assert (own.allowed() == before).all()


def test_it_draws_as_the_reply_does_and_goes_on_for_as_long_as_the_reply_must(tiny_vocabulary: Vocabulary) -> None:
    sampler = Sampler(Sampling(max_tokens=50, temperature=1.0, seed=7), 7, 0, set())
    ahead = preview(tiny_vocabulary, None)
    for position in range(5):
        scores = logits(tiny_vocabulary, position)
        assert ahead.take(scores) == [sampler.pick(scores, position, None)]
    ends = logits(tiny_vocabulary, 0)
    ends[tiny_vocabulary.eos_id] = 1000
    assert preview(tiny_vocabulary, None).take(ends) == []
    assert len(preview(tiny_vocabulary, None, least=1).take(ends)) == 1


def test_a_grammar_that_takes_too_long_ends_it(tiny_vocabulary: Vocabulary, compiler: GrammarCompiler) -> None:
    class Slow(LLGrammar):
        def allowed(self) -> NDArray[np.bool_]:
            raise GrammarLimitError

        def permits(self, token: int) -> bool:  # noqa: ARG002
            return False

    slow = Slow(compiler.compile(TEXT)._matcher, len(tiny_vocabulary))
    assert preview(tiny_vocabulary, slow).take(logits(tiny_vocabulary, 0)) == []


def test_a_model_that_gives_no_numbers_ends_it(tiny_vocabulary: Vocabulary) -> None:
    assert preview(tiny_vocabulary, None).take(np.full(len(tiny_vocabulary), np.nan, np.float32)) == []


def test_a_model_that_is_the_target_itself_guesses_right_in_a_grammar_too(
    tiny_model: Model, tiny_vocabulary: Vocabulary, compiler: GrammarCompiler
) -> None:
    rig = Rig(tiny_model, tiny_vocabulary, speculator=eager(beside(tiny_model)))
    sampling = Sampling(max_tokens=200, temperature=1.0, seed=2)
    reply = rig.complete(ask(range(10, 20), sampling=sampling), [compiler.compile("start: /[a-c]{40,50}/")])
    counters = rig.engine.counters
    assert len(reply.tokens()) >= 40
    assert counters.accepted["model"] == counters.drafted["model"] > 25
