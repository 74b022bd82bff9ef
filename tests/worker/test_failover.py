"""failed-over == undisturbed: another worker that replays the accepted tokens goes on as if it had been there."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worker.rig import Reply, Rig, ask
from tests.worker.test_grammar import PERSON, lark
from worker.grammar import Grammar, GrammarCompiler
from worker.model import Model
from worker.speculation import Speculator
from worker.tokenizer import Vocabulary
from worker.wire import Accepted, Delta, Finish, Frame, GenerateRequest, Sampling, WorkerError

PROMPT = list(range(20, 43))
GRAMMARS = [None, None, lark(PERSON), 'start: "go " /[ab ]{4,40}/ " and stop here" /[.!]/']


@pytest.fixture(scope="module")
def compiler(tiny_vocabulary: Vocabulary) -> GrammarCompiler:
    return GrammarCompiler(tiny_vocabulary)


def grammars(compiler: GrammarCompiler, text: str | None, n: int) -> list[Grammar]:
    return [] if text is None else [compiler.compile(text) for _ in range(n)]


def request(sampling: Sampling, n: int, accepted: Sequence[Accepted] = ()) -> GenerateRequest:
    asked = ask(PROMPT, sampling=sampling, n=n)
    return GenerateRequest(asked.request_id, asked.tokens, asked.spans, sampling, n=n, accepted=list(accepted))


def passed_on(frames: Sequence[Frame]) -> Sequence[Frame]:
    """A gateway holds text without tokens back until the finish that it belongs to (gateway/dispatch.py)."""
    last = frames[-1] if frames else None
    return frames[:-1] if isinstance(last, Delta) and not last.tokens else frames


def accepted_of(frames: Sequence[Frame], n: int) -> list[Accepted]:
    """What a gateway knows that has passed these frames on."""
    tokens: list[list[int]] = [[] for _ in range(n)]
    ends = {frame.index for frame in frames if isinstance(frame, Finish)}
    for frame in frames:
        if isinstance(frame, Delta):
            tokens[frame.index].extend(frame.tokens)
    return [Accepted(tokens[index], index in ends) for index in range(n)]


samplings = st.builds(
    Sampling,
    max_tokens=st.integers(1, 40),
    temperature=st.sampled_from([0.0, 0.7, 1.2]),
    seed=st.integers(0, 99),
    frequency_penalty=st.sampled_from([0.0, 0.8]),
    repetition_penalty=st.sampled_from([1.0, 1.2]),
    stop=st.sampled_from([[], ["e", "go to"], ["\ufffd"]]),
    min_tokens=st.sampled_from([0, 5]),
)


@settings(max_examples=25)
@given(
    sampling=samplings,
    n=st.integers(1, 3),
    grammar=st.sampled_from(GRAMMARS),
    cut=st.floats(0, 1),
    most=st.sampled_from([0, 4]),
)
def test_failed_over_is_undisturbed(
    tiny_model: Model,
    tiny_vocabulary: Vocabulary,
    compiler: GrammarCompiler,
    sampling: Sampling,
    n: int,
    grammar: str | None,
    cut: float,
    most: int,
) -> None:
    whole = Rig(tiny_model, tiny_vocabulary).complete(request(sampling, n), grammars(compiler, grammar, n))
    seen = passed_on(whole.frames[1:-1][: round(cut * (len(whole.frames) - 2))])
    accepted = accepted_of(seen, n)
    rig = Rig(tiny_model, tiny_vocabulary, speculator=Speculator(most, adaptive=False))
    rest = rig.submit(request(sampling, n, accepted), grammars(compiler, grammar, n))
    rig.run()
    joined = Reply([whole.start, *seen, *rest.frames[1:]])
    joined.check(n)
    for index in range(n):
        assert joined.tokens(index) == whole.tokens(index)
        assert joined.text(index) == whole.text(index)
        assert joined.finish(index) == whole.finish(index)
    assert rest.end.completion_tokens == whole.end.completion_tokens
    rig.check_idle()


def test_what_was_accepted_is_computed_once_and_reused_like_a_prompt(rig: Rig) -> None:
    sampling = Sampling(max_tokens=20, temperature=0, ignore_eos=True)
    whole = rig.complete(request(sampling, 1))
    rest = rig.submit(request(sampling, 1, [Accepted(whole.tokens()[:12])]))
    rig.run()
    assert rest.start.prompt_tokens == len(PROMPT)
    assert rest.start.cached.device == (len(PROMPT) + 12 - 1) // 8 * 8
    assert rest.tokens() == whole.tokens()[12:]


@pytest.mark.parametrize(
    ("accepted", "grammar"),
    [
        ([Accepted([30]), Accepted([30])], None),
        ([Accepted([100_000])], None),
        ([Accepted([30] * 9)], None),
        ([Accepted([2])], None),
        ([Accepted([30])], 'start: "yes"'),
    ],
    ids=["one too many", "no such token", "more than were asked for", "an end is no part", "against the grammar"],
)
def test_tokens_that_cannot_be_of_the_reply_are_refused(
    rig: Rig, compiler: GrammarCompiler, accepted: list[Accepted], grammar: str | None
) -> None:
    with pytest.raises(WorkerError) as caught:
        rig.submit(request(Sampling(max_tokens=8), 1, accepted), grammars(compiler, grammar, 1))
    assert (caught.value.status, caught.value.code, caught.value.param) == (400, "bad_request", "accepted")
    rig.check_idle()
