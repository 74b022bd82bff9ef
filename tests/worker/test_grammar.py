"""Constrained decoding: what the masks leave, what they force, and how a reply lands before its limit."""

import json
from dataclasses import replace
from typing import Any, cast

import jsonschema
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llguidance import LLMatcher
from tokenizers import Tokenizer, decoders

from tests.worker.rig import Rig, ask
from worker.grammar import GrammarCompiler, Landing, LLGrammar, _refusal, landing_room
from worker.sequence import Job, Sequence
from worker.tokenizer import Vocabulary
from worker.weights import ModelError
from worker.wire import Delta, ErrorFrame, Finish, Frame, Sampling, WorkerError

LAYOUT = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["red", "green"]}, "maxItems": 3},
        "on": {"type": "boolean"},
    },
    "required": ["name", "on"],
    "additionalProperties": False,
}
DEEP = {
    "type": "object",
    "properties": {"items": {"type": "array", "items": {"type": "object", "properties": {"s": {"type": "string"}}}}},
    "required": ["items"],
}
TREE = {
    "$defs": {"node": {"type": "object", "properties": {"c": {"type": "array", "items": {"$ref": "#/$defs/node"}}}}},
    "$ref": "#/$defs/node",
}
OPEN = {"type": "object"}
TEXT = {"type": "object", "properties": {"text": {"type": "string"}, "n": {"type": "number"}}, "required": ["text"]}


def lark(schema: dict[str, Any]) -> str:
    return f"start: %json {json.dumps({**schema, 'x-guidance': LAYOUT})}"


@pytest.fixture(scope="module")
def compiler(tiny_vocabulary: Vocabulary) -> GrammarCompiler:
    return GrammarCompiler(tiny_vocabulary)


def walk(grammar: LLGrammar, vocabulary: Vocabulary, seed: int, most: int) -> bytes | None:
    """Text of a random walk to the end, None when it takes too long; each token must be as allowed as the mask says."""
    rng = np.random.default_rng(seed)
    text = b""
    for _ in range(most):
        token = int(rng.choice(np.flatnonzero(grammar.allowed())))
        assert grammar.accept(token)
        if token in vocabulary.stop_ids:
            assert grammar.is_done
            return text
        text += vocabulary.texts[token]
    return None


@given(seed=st.integers(0, 2**32))
def test_whatever_the_masks_allow_is_valid(compiler: GrammarCompiler, tiny_vocabulary: Vocabulary, seed: int) -> None:
    text = walk(compiler.compile(lark(PERSON)), tiny_vocabulary, seed, most=200)
    assert text is not None
    jsonschema.validate(json.loads(text), PERSON)


@given(seed=st.integers(0, 2**32), steps=st.integers(0, 30))
def test_forced_tokens_spell_what_the_masks_leave(
    compiler: GrammarCompiler, tiny_vocabulary: Vocabulary, seed: int, steps: int
) -> None:
    grammar = compiler.compile(lark(PERSON))
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        token = int(rng.choice(np.flatnonzero(grammar.allowed())))
        if token in tiny_vocabulary.stop_ids:
            break
        grammar.accept(token)
    rest = b"".join(tiny_vocabulary.texts[token] for token in grammar.forced())
    for token in grammar.forced():
        for allowed in np.flatnonzero(grammar.allowed()):
            spelled = tiny_vocabulary.texts[allowed]
            assert spelled
            assert rest.startswith(spelled) or spelled.startswith(rest)
        assert grammar.accept(token)
        rest = rest.removeprefix(tiny_vocabulary.texts[token])


def test_a_long_forced_text_is_found_once_and_not_at_every_token(
    compiler: GrammarCompiler, tiny_vocabulary: Vocabulary
) -> None:
    """Each time takes as long as the text: an engine step would, for whoever wants log probabilities of it."""
    grammar = compiler.compile(f'start: /[xy]/ "{"as long as it may be " * 40}" /[xy]/')
    finds = 0
    matcher: Any = grammar._matcher

    class Counting:
        def __getattr__(self, name: str) -> Any:
            nonlocal finds
            finds += name == "compute_ff_tokens"
            return getattr(matcher, name)

    grammar._matcher = cast("LLMatcher", Counting())
    x = tiny_vocabulary.texts.index(b"x")
    assert grammar.permits(x)
    assert grammar.accept(x)
    text, finds = b"", 0
    while len(tokens := np.flatnonzero(grammar.allowed())) == 1:
        assert not grammar.permits(int(tokens[0]))
        assert grammar.accept(int(tokens[0]))
        text += tiny_vocabulary.texts[tokens[0]]
    assert text == b"as long as it may be " * 40
    assert finds < 10


def test_where_there_is_a_choice_nothing_is_forced(compiler: GrammarCompiler, tiny_vocabulary: Vocabulary) -> None:
    grammar = compiler.compile('start: "yes" | "no"')
    assert grammar.forced() == []
    allowed = {tiny_vocabulary.texts[token] for token in np.flatnonzero(grammar.allowed())}
    assert allowed == {b"y", b"n"}
    assert grammar.accept(tiny_vocabulary.texts.index(b"y"))
    assert b"".join(tiny_vocabulary.texts[token] for token in grammar.forced()) == b"es"


def test_a_token_that_is_not_allowed_is_not_accepted(compiler: GrammarCompiler, tiny_vocabulary: Vocabulary) -> None:
    assert not compiler.compile('start: "yes"').accept(tiny_vocabulary.texts.index(b"n"))


def test_a_finished_grammar_allows_the_end_and_nothing_else(
    compiler: GrammarCompiler, tiny_vocabulary: Vocabulary
) -> None:
    grammar = compiler.compile('start: "a"')
    assert grammar.accept(tiny_vocabulary.texts.index(b"a"))
    assert np.flatnonzero(grammar.allowed()).tolist() == tiny_vocabulary.stop_ids
    assert grammar.is_done


@given(seed=st.integers(0, 2**32), before=st.integers(0, 6), taken_back=st.integers(1, 6))
def test_rollback_returns_to_the_same_masks(compiler: GrammarCompiler, seed: int, before: int, taken_back: int) -> None:
    grammar = compiler.compile(lark(PERSON))
    rng = np.random.default_rng(seed)
    masks = [grammar.allowed()]
    for _ in range(before + taken_back):
        assert grammar.accept(int(rng.choice(np.flatnonzero(masks[-1]))))
        masks.append(grammar.allowed())
    grammar.rollback(taken_back)
    assert np.array_equal(grammar.allowed(), masks[before])


@given(seed=st.integers(0, 2**32), before=st.integers(0, 12))
def test_one_token_is_permitted_if_the_mask_allows_it(compiler: GrammarCompiler, seed: int, before: int) -> None:
    grammar = compiler.compile(lark(PERSON))
    rng = np.random.default_rng(seed)
    for _ in range(before):
        assert grammar.accept(int(rng.choice(np.flatnonzero(grammar.allowed()))))
    allowed = grammar.allowed()
    permitted = [grammar.permits(token) for token in range(len(allowed))]
    assert not any(permitted) if grammar.forced() else permitted == allowed.tolist()


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (lark({"type": "object", "unevaluatedProperties": False}), "unevaluatedProperties"),
        (lark({"not": {"type": "string"}}), "not"),
        (lark({"type": "array", "uniqueItems": True}), "uniqueItems"),
        (lark({"type": "string", "format": "phone"}), "phone"),
        ("start: missing_rule", "missing_rule"),
        ("start: %json {", "json"),
        ("", "Empty"),
        ("start: T\nT: /a/ & /b/", "the grammar allows no text"),
    ],
)
def test_what_cannot_be_enforced_is_refused_by_name(compiler: GrammarCompiler, text: str, named: str) -> None:
    with pytest.raises(WorkerError, match=named) as caught:
        compiler.compile(text)
    assert (caught.value.status, caught.value.code, caught.value.param) == (400, "grammar", "grammar")


def test_tokens_that_no_grammar_can_follow_are_the_models_error(tiny_vocabulary: Vocabulary) -> None:
    tokenizer = Tokenizer.from_str(tiny_vocabulary.json)
    tokenizer.decoder = decoders.Replace("\u2581", " ")
    with pytest.raises(ModelError, match="no grammar can follow: can't determine decoder"):
        GrammarCompiler(replace(tiny_vocabulary, json=tokenizer.to_str()))


def test_two_grammars_of_one_text_do_not_share_a_position(
    compiler: GrammarCompiler, tiny_vocabulary: Vocabulary
) -> None:
    first, second = compiler.compile('start: "ab"'), compiler.compile('start: "ab"')
    assert first.accept(tiny_vocabulary.texts.index(b"a"))
    assert second.accept(tiny_vocabulary.texts.index(b"a"))
    assert np.array_equal(first.allowed(), second.allowed())


def test_compiled_grammars_are_kept_for_their_tag(tiny_vocabulary: Vocabulary) -> None:
    compiler = GrammarCompiler(tiny_vocabulary, cache_bytes=100_000)
    text = 'start: "yes" | "no"'
    assert compiler.known(text, "acme") is None
    first = compiler.compile(text, "acme")
    again = compiler.known(text, "acme")
    assert again is not None
    assert np.array_equal(first.allowed(), again.allowed())
    assert compiler.known(text, "globex") is None
    for number in range(5):
        compiler.compile(f'start: "{number}"', "acme")
    assert compiler.known(text, "acme") is None


@pytest.mark.parametrize(
    "text",
    [
        lark({"allOf": [{"type": "string", "pattern": f"(.*{letter}.*){{3}}"} for letter in "abcdef"]}),
        "start: " + "(" * 3000 + '"a"' + ")" * 3000,
        'start: a\na: "lorem ipsum dolor " a',
    ],
    ids=["patterns that meet", "nested deeply", "forced without end"],
)
def test_a_grammar_that_is_too_much_is_refused_as_such(compiler: GrammarCompiler, text: str) -> None:
    with pytest.raises(WorkerError) as caught:
        compiler.compile(text)
    assert (caught.value.status, caught.value.code) == (400, "grammar_too_complex")


def test_a_compiler_that_gives_itself_up_is_quoted_to_nobody() -> None:
    refusal = _refusal("panic: assertion failed: grammar.symbols.len() < u16::MAX\n  at parser.rs")
    assert (refusal.code, refusal.message) == ("grammar_too_complex", "the grammar is too large to compile")


GREEDY = "start: /(((a{1,1000}){1,1000}){1,1000}){1,1000}/"


def test_a_grammar_that_becomes_too_much_ends_its_request_alone(
    rig: Rig, compiler: GrammarCompiler, tiny_vocabulary: Vocabulary
) -> None:
    other = rig.submit(ask([5, 6], sampling=Sampling(max_tokens=8, temperature=0, ignore_eos=True)))
    grammars = [compiler.compile(GREEDY) for _ in range(2)]
    sampling = Sampling(max_tokens=200, temperature=0, ignore_eos=True)
    reply = rig.submit(ask([7, 8], sampling=sampling, n=2), grammars)
    rig.run()
    assert reply.frames[-1] == ErrorFrame("grammar_too_complex", "the grammar takes too long to follow")
    assert not any(isinstance(frame, Finish) for frame in reply.frames)
    assert len(other.tokens()) == 8
    other.check()
    rig.check_idle()


def constrained_reply(
    compiler: GrammarCompiler, vocabulary: Vocabulary, schema: dict[str, Any], max_tokens: int, seed: int
) -> tuple[str, Finish]:
    """A reply whose logits are noise: everything that makes it valid comes from the grammar and the landing."""
    frames: list[Frame] = []
    params = Sampling(max_tokens=max_tokens, seed=seed)
    job = Job(ask([1], sampling=params), [compiler.compile(lark(schema))], frames.append)
    sequence = Sequence(job, 0, vocabulary, Landing(vocabulary), context=4096)
    job.sequences = [sequence]
    rng = np.random.default_rng(seed)
    while not sequence.finished:
        sequence.advance(rng.normal(size=(1, len(vocabulary))).astype(np.float32), [])
    assert isinstance(frames[-1], Finish)
    return "".join(frame.text for frame in frames if isinstance(frame, Delta)), frames[-1]


# With each, the least limit that leaves it room to land: no landing is shorter than the keys that are required.
LANDINGS: dict[str, tuple[dict[str, Any], int]] = {
    "person": (PERSON, 160),
    "deep": (DEEP, 16),
    "tree": (TREE, 16),
    "open": (OPEN, 16),
    "text": (TEXT, 16),
    "number": ({"type": "number"}, 4),
}


@pytest.mark.parametrize("name", LANDINGS)
@settings(max_examples=40)
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_a_reply_of_noise_lands_as_valid_json_before_its_limit(
    compiler: GrammarCompiler, tiny_vocabulary: Vocabulary, name: str, data: st.DataObject, seed: int
) -> None:
    schema, least = LANDINGS[name]
    max_tokens = data.draw(st.integers(least, 240))
    text, finish = constrained_reply(compiler, tiny_vocabulary, schema, max_tokens, seed)
    jsonschema.validate(json.loads(text), schema)
    assert finish.completion_tokens <= max_tokens


def test_only_closing_tokens_are_left_when_a_reply_lands(
    compiler: GrammarCompiler, tiny_vocabulary: Vocabulary
) -> None:
    landing, grammar = Landing(tiny_vocabulary), compiler.compile(lark(OPEN))
    for token in b'{"a": ["x':
        assert grammar.accept(tiny_vocabulary.texts.index(bytes([token])))

    def left() -> set[bytes]:
        return {tiny_vocabulary.texts[token] for token in np.flatnonzero(landing.steer(grammar.allowed(), 9))}

    assert left() == {b'"', b'"]'}
    assert grammar.accept(tiny_vocabulary.texts.index(b'"'))
    assert left() == {b"]", b"]}"}
    assert grammar.accept(tiny_vocabulary.texts.index(b"]"))
    assert left() == {b"}"}
    assert grammar.accept(tiny_vocabulary.texts.index(b"}"))
    assert left() == {b""}


def test_free_text_is_not_steered(compiler: GrammarCompiler, tiny_vocabulary: Vocabulary) -> None:
    allowed = compiler.compile("start: /(.|\\n)*/").allowed()
    assert np.array_equal(Landing(tiny_vocabulary).steer(allowed, 1), allowed)


@pytest.mark.parametrize("ignore_eos", [True, False])
def test_the_end_of_a_grammar_is_no_token_of_the_reply(
    compiler: GrammarCompiler, tiny_vocabulary: Vocabulary, ignore_eos: bool
) -> None:
    frames: list[Frame] = []
    params = Sampling(max_tokens=50, temperature=0, ignore_eos=ignore_eos, logit_bias={"2": 50})
    job = Job(ask([1], sampling=params), [compiler.compile("start: /a{2,4}/")], frames.append)
    sequence = Sequence(job, 0, tiny_vocabulary, Landing(tiny_vocabulary), context=99)
    while not sequence.finished:
        sequence.advance(np.zeros((1, len(tiny_vocabulary)), dtype=np.float32), [])
    assert frames[-1] == Finish(0, "stop", 4 if ignore_eos else 2)


def test_min_tokens_puts_off_an_end_that_the_grammar_allows(
    compiler: GrammarCompiler, tiny_vocabulary: Vocabulary
) -> None:
    frames: list[Frame] = []
    params = Sampling(max_tokens=50, temperature=0, min_tokens=3, logit_bias={"2": 50})
    job = Job(ask([1], sampling=params), [compiler.compile("start: /a*/")], frames.append)
    sequence = Sequence(job, 0, tiny_vocabulary, Landing(tiny_vocabulary), context=99)
    while not sequence.finished:
        sequence.advance(np.zeros((1, len(tiny_vocabulary)), dtype=np.float32), [])
    assert frames[-1] == Finish(0, "stop", 3)


@pytest.mark.parametrize(("limit", "room"), [(1, 1), (16, 16), (40, 16), (100, 25), (512, 128), (4000, 128)])
def test_the_room_to_land_is_a_quarter_within_bounds(limit: int, room: int) -> None:
    assert landing_room(limit) == room
