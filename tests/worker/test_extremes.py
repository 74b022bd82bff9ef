"""Sampling parameters at the ends of what the wire takes, together: every reply comes to its end, and in numbers."""

import math

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worker.rig import Rig, ask
from tests.worker.test_grammar import PERSON, lark
from worker.grammar import GrammarCompiler
from worker.model import Model
from worker.ngrams import NgramIndex
from worker.speculation import Speculator
from worker.tokenizer import Vocabulary
from worker.wire import Sampling

LEAST = 5e-324  # the smallest number of all
GRAMMARS = [None, None, lark(PERSON), 'start: "go " /[ab ]{4,40}/ " on" /[.!]/', 'start: ""', "start: /(?s:.*)/"]

samplings = st.builds(
    Sampling,
    max_tokens=st.integers(1, 30),
    temperature=st.sampled_from([0.0, LEAST, 1e-3, 1.0, 2.0]),
    top_p=st.sampled_from([LEAST, 0.5, 0.999999, 1.0]),
    top_k=st.sampled_from([0, 1, 10**9]),
    min_p=st.sampled_from([0.0, LEAST, 0.5, 1.0]),
    seed=st.sampled_from([None, -(2**63), 2**63 - 1]),
    stop=st.sampled_from([[], ["e"], ["\ufffd"], ["a" * 1024], ["a", "aa", "aaa"]]),
    stop_ids=st.lists(st.integers(0, 200), max_size=64),
    logprobs=st.sampled_from([None, 0, 20]),
    frequency_penalty=st.sampled_from([-2.0, 0.0, 2.0]),
    presence_penalty=st.sampled_from([-2.0, 0.0, 2.0]),
    repetition_penalty=st.sampled_from([0.01, 1.0, 10.0]),
    logit_bias=st.dictionaries(st.integers(0, 200).map(str), st.sampled_from([-100.0, 100.0, LEAST]), max_size=40),
    ignore_eos=st.booleans(),
    min_tokens=st.sampled_from([0, 1, 5, 2**31]),
)


@pytest.fixture(scope="module")
def compiler(tiny_vocabulary: Vocabulary) -> GrammarCompiler:
    return GrammarCompiler(tiny_vocabulary)


@settings(max_examples=30)
@given(
    sampling=samplings,
    n=st.integers(1, 3),
    text=st.sampled_from(GRAMMARS),
    most=st.sampled_from([0, 4]),
    prompt=st.lists(st.integers(0, 250), min_size=1, max_size=20),
)
def test_every_reply_comes_to_its_end(
    tiny_model: Model,
    tiny_vocabulary: Vocabulary,
    compiler: GrammarCompiler,
    sampling: Sampling,
    n: int,
    text: str | None,
    most: int,
    prompt: list[int],
) -> None:
    asked = msgspec.json.decode(msgspec.json.encode(sampling), type=Sampling)
    drafts = Speculator(most, adaptive=False, index=lambda: NgramIndex((2, 1)))
    rig = Rig(tiny_model, tiny_vocabulary, speculator=drafts)
    grammars = [] if text is None else [compiler.compile(text) for _ in range(n)]
    reply = rig.submit(ask(prompt, sampling=asked, n=n), grammars)
    rig.run()
    reply.check(n)
    for index in range(n):
        assert all(math.isfinite(logprob.logprob) for logprob in reply.logprobs(index))
        assert len(reply.logprobs(index)) == (0 if asked.logprobs is None else len(reply.tokens(index)))
    rig.check_idle()
