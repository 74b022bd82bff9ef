"""A draft model: what it guesses, that it changes no reply, and that it holds nothing for who does not run."""

from array import array
from collections.abc import Sequence as Tokens
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worker.kv.layouts import LAYOUTS, LayoutClass
from tests.worker.rig import BLOCK, Reply, Rig, ask, greedy
from tests.worker.test_grammar import PERSON, lark
from tests.worker.test_speculation import samplings
from tests.worker.tiny import write_tiny
from worker.draft_model import DraftModel
from worker.grammar import Grammar, GrammarCompiler, Landing
from worker.kv import SlotLayout
from worker.kv.tiled import TILE, TiledSlotLayout
from worker.model import Model
from worker.ngrams import NgramIndex
from worker.rows import Row
from worker.sampler import Logits
from worker.sequence import Job, Sequence
from worker.speculation import Speculator
from worker.tokenizer import Vocabulary
from worker.weights import open_weights
from worker.wire import GenerateRequest, Sampling

GRAMMARS = [None, None, lark(PERSON), "start: /[a-c]{1,30}/"]
CONTEXT = 256


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """A model of the same tokens with other weights, which guesses wrong nearly always."""
    return Model(open_weights(write_tiny(tmp_path_factory.mktemp("stranger") / "m.gguf", seed=1)), torch.float32)


@pytest.fixture(scope="module")
def compiler(tiny_vocabulary: Vocabulary) -> GrammarCompiler:
    return GrammarCompiler(tiny_vocabulary)


def beside(model: Model, *, slots: int = 4, layout: LayoutClass = SlotLayout, vocabulary: int = 0) -> DraftModel:
    """Guesses of a model with KV of its own, in either layout."""
    blocks = slots * CONTEXT // BLOCK
    own = layout(model.kv_shape, slots=slots, context=CONTEXT, blocks=blocks, block_size=BLOCK)
    return DraftModel(model, own, vocabulary or model.config.vocabulary)


def eager(draft_model: DraftModel, most: int = 5, lookup: bool = False) -> Speculator:
    """Guesses after every token, whether it pays or not, and looks up first if it shall."""
    lengths = (2, 1) if lookup else (CONTEXT,)
    return Speculator(most, adaptive=False, index=lambda: NgramIndex(lengths), draft_model=draft_model)


# A prompt's length, how it is sampled, its grammar, the step it comes at, and how many later it is aborted, if it is.
plans = st.tuples(
    st.integers(1, 60), samplings, st.integers(0, len(GRAMMARS) - 1), st.integers(0, 6), st.none() | st.integers(1, 12)
)
Plan = tuple[int, Sampling, int, int, int | None]


def asked(
    compiler: GrammarCompiler, size: int, sampling: Sampling, grammar: int, number: int = 0
) -> tuple[GenerateRequest, list[Grammar]]:
    text = GRAMMARS[grammar]
    request = ask(range(10, 10 + size), request_id=str(number), sampling=sampling)
    return request, [] if text is None else [compiler.compile(text)]


def play(rig: Rig, compiler: GrammarCompiler, schedule: Tokens[Plan]) -> list[Reply]:
    """Submits and aborts each request at its steps, preempts one now and then; the books are looked at every time."""
    replies: dict[int, Reply] = {}
    for step in range(400):
        for number, (size, sampling, grammar, arrives, aborted) in enumerate(schedule):
            if arrives == step:
                replies[number] = rig.submit(*asked(compiler, size, sampling, grammar, number))
            if aborted is not None and arrives + aborted == step:
                rig.engine.abort(str(number))
        if step % 7 == 5 and rig.scheduler.running:
            rig.scheduler.preempt(rig.scheduler.running[0])
        busy = rig.engine.step()
        rig.check_drafts()
        if not busy and step > 20:
            break
    return [replies[number] for number in range(len(schedule))]


@pytest.mark.parametrize("layout", LAYOUTS)
@settings(max_examples=8)
@given(
    schedule=st.lists(plans, min_size=1, max_size=3),
    same=st.booleans(),
    lookup=st.booleans(),
    slots=st.integers(1, 4),
    budget=st.integers(8, 40),
    blocks=st.sampled_from([14, 64]),
    most=st.integers(1, 7),
)
def test_drafted_by_a_model_is_plain(
    tiny_model: Model,
    stranger: Model,
    tiny_vocabulary: Vocabulary,
    compiler: GrammarCompiler,
    layout: LayoutClass,
    schedule: list[Plan],
    same: bool,
    lookup: bool,
    slots: int,
    budget: int,
    blocks: int,
    most: int,
) -> None:
    speculator = eager(beside(tiny_model if same else stranger, slots=slots), most, lookup)
    rig = Rig(
        tiny_model,
        tiny_vocabulary,
        slots=slots,
        budget=budget,
        blocks=blocks,
        context=14 * BLOCK,
        speculator=speculator,
        layout=layout,
    )
    for (size, sampling, grammar, _, aborted), reply in zip(schedule, play(rig, compiler, schedule), strict=True):
        reply.check()
        plain = Rig(tiny_model, tiny_vocabulary, slots=1).complete(*asked(compiler, size, sampling, grammar))
        if aborted is not None and reply.finish().reason == "abort":
            assert reply.tokens() == plain.tokens()[: len(reply.tokens())]
        else:
            assert (reply.tokens(), reply.text(), reply.finish()) == (plain.tokens(), plain.text(), plain.finish())
    rig.check_idle()


@pytest.mark.parametrize("layout", LAYOUTS)
@settings(max_examples=10)
@given(rounds=st.lists(st.lists(st.tuples(st.booleans(), st.integers(0, 5)), min_size=2, max_size=2), max_size=4))
def test_guesses_are_those_of_a_model_that_has_guessed_nothing_before(
    tiny_model: Model,
    tiny_vocabulary: Vocabulary,
    layout: LayoutClass,
    rounds: list[list[tuple[bool, int]]],
) -> None:
    """Two replies go on with some of what was guessed, and then with a wrong token or with none."""
    used = beside(tiny_model, layout=layout)
    replies = [reply_of(tiny_vocabulary, range(20, 31)), reply_of(tiny_vocabulary, range(60, 65))]
    for steps in rounds:
        for reply, (wrong, accepted) in zip(replies, steps, strict=True):
            (guesses,) = used.draft({reply: 4}, 40).values()
            reply.tokens.extend(array("I", guesses[:accepted]))
            if wrong:
                reply.tokens.append(7)
    fresh = beside(tiny_model, layout=layout)
    expected = fresh.draft(dict.fromkeys(replies, 4), 500)
    for reply, guesses in used.draft(dict.fromkeys(replies, 4), 500).items():
        assert guesses == expected[reply][: len(guesses)]
        assert len(guesses) == 4 or not (rounds and rounds[-1][replies.index(reply)][0])
    used.check(replies)
    for reply in replies:
        used.leave(reply)
    used.check([])


def reply_of(vocabulary: Vocabulary, prompt: Tokens[int], sampling: Sampling | None = None) -> Sequence:
    job = Job(ask(prompt, sampling=sampling or greedy(100)), [], lambda _: None)
    return Sequence(job, 0, vocabulary, Landing(vocabulary), CONTEXT)


@pytest.mark.parametrize("sampling", [greedy(60), Sampling(max_tokens=60, temperature=1.2, top_p=0.9, seed=3)])
def test_a_model_that_is_the_target_itself_guesses_right(
    tiny_model: Model, tiny_vocabulary: Vocabulary, sampling: Sampling
) -> None:
    """At any temperature: it draws with the reply's own randomness."""
    rig = Rig(tiny_model, tiny_vocabulary, speculator=eager(beside(tiny_model)))
    reply = rig.complete(ask(range(10, 20), sampling=sampling))
    counters = rig.engine.counters
    assert counters.accepted == counters.drafted
    assert counters.accepted["model"] == len(reply.tokens()) - counters.steps
    assert counters.steps <= len(reply.tokens()) // 6 + 3


def test_the_bits_of_the_deterministic_mode_are_the_target_s_own(
    tiny_path: Path, stranger: Model, tiny_vocabulary: Vocabulary
) -> None:
    tiled = Model(open_weights(tiny_path), torch.float32, tile=TILE)
    plain = Rig(tiled, tiny_vocabulary, layout=TiledSlotLayout).complete(ask(range(10, 30), sampling=greedy(30)))
    for guessing in (stranger, tiled):
        rig = Rig(tiled, tiny_vocabulary, layout=TiledSlotLayout, speculator=eager(beside(guessing)))
        others = [rig.submit(ask(range(50, 60 + size), sampling=greedy(20))) for size in range(3)]
        reply = rig.complete(ask(range(10, 30), sampling=greedy(30)))
        assert (reply.tokens(), reply.logprobs()) == (plain.tokens(), plain.logprobs())  # not nearly: equal
        assert all(len(other.tokens()) == 20 for other in others)


def test_a_prompt_is_caught_up_with_in_chunks_of_what_the_step_has_left(
    tiny_model: Model, stranger: Model, tiny_vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(tiny_model, tiny_vocabulary, budget=16, speculator=eager(beside(stranger)))
    passes: list[list[int]] = []
    compute = DraftModel._compute

    def seen(draft_model: DraftModel, tokens: list[int], rows: list[Row]) -> Logits:
        passes.append(tokens)
        return compute(draft_model, tokens, rows)

    monkeypatch.setattr(DraftModel, "_compute", seen)
    prompt = list(range(10, 110))
    reply = rig.submit(ask(prompt, sampling=greedy(40)))
    while not passes:
        rig.engine.step()
    caught_up: list[int] = []
    while len(caught_up) < len(prompt):
        caught_up += passes[-1]
        assert len(passes[-1]) == 15 or len(caught_up) > len(prompt)  # one of the step's tokens is the reply's own
        rig.engine.step()
    assert caught_up[: len(prompt)] == prompt
    rig.run()
    reply.check()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_choices_of_one_request_catch_up_with_their_prompt_once(
    tiny_model: Model, tiny_vocabulary: Vocabulary, layout: LayoutClass
) -> None:
    plain, sampling = Rig(tiny_model, tiny_vocabulary), Sampling(max_tokens=12, temperature=1.0, seed=4)
    request = ask(range(10, 70), sampling=sampling, n=3)
    expected = plain.complete(request)
    model = beside(tiny_model, layout=layout)
    rig, computed = Rig(tiny_model, tiny_vocabulary, budget=128, speculator=eager(model)), 0
    compute = model._compute

    def counted(tokens: list[int], rows: list[Row]) -> Logits:
        nonlocal computed
        computed += len(tokens)
        return compute(tokens, rows)

    model._compute = counted  # type: ignore[method-assign]
    reply = rig.complete(request)
    assert [reply.tokens(index) for index in range(3)] == [expected.tokens(index) for index in range(3)]
    assert rig.engine.counters.accepted["model"] == rig.engine.counters.drafted["model"] > 20
    assert computed < 60 + 3 * 2 * 12
    model.check([])


def test_a_step_is_within_its_budget_with_all_that_is_guessed(tiny_model: Model, tiny_vocabulary: Vocabulary) -> None:
    rig = Rig(tiny_model, tiny_vocabulary, budget=12, speculator=eager(beside(tiny_model), 7))
    for _ in range(3):
        rig.submit(ask([5, 12], sampling=greedy(60)))
    rig.scheduler.admit()
    sizes = []
    while rig.scheduler.running:
        batch = rig.scheduler.next_batch()
        assert batch is not None
        sizes.append(len(batch.tokens))
        rig.engine.step()
    assert 3 < max(sizes) <= 12


def test_a_step_that_is_planned_again_is_not_guessed_for_again(
    tiny_model: Model, tiny_vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(tiny_model, tiny_vocabulary, speculator=eager(beside(tiny_model)))
    rig.submit(ask(range(10, 20), sampling=greedy(60)))
    for _ in range(3):
        rig.engine.step()
    first = rig.scheduler.next_batch()
    monkeypatch.delattr(DraftModel, "_compute")
    assert first is not None
    assert sum(map(len, first.drafts)) == 5
    assert rig.scheduler.next_batch() == first


@pytest.mark.parametrize("rows", [-40, 40])
def test_an_embedding_may_have_more_rows_than_there_are_tokens(
    tiny_model: Model, tiny_vocabulary: Vocabulary, rows: int
) -> None:
    """Of which the draft model has fewer than its target, or more: a token that it can't know is guessed around."""
    target = tiny_model.config.vocabulary + rows
    draft_model = beside(tiny_model, vocabulary=target)
    reply = reply_of(tiny_vocabulary, [target - 1, 5, 6])
    (guesses,) = draft_model.draft({reply: 4}, 100).values()
    assert len(guesses) == 4
    assert all(token < min(target, tiny_model.config.vocabulary) for token in guesses)


def test_beyond_its_context_a_model_guesses_nothing(tiny_model: Model, tiny_vocabulary: Vocabulary) -> None:
    draft_model = beside(tiny_model)
    longest = reply_of(tiny_vocabulary, [9] * (CONTEXT - 3), greedy(3))
    assert draft_model.room_for(longest) == 2
    longest.tokens.extend([9, 9, 9])
    assert draft_model.room_for(longest) <= 0


def test_slots_that_nobody_gave_back_are_found(tiny_model: Model, tiny_vocabulary: Vocabulary) -> None:
    draft_model = beside(tiny_model)
    reply = reply_of(tiny_vocabulary, [5, 6])
    draft_model.draft({reply: 1}, 10)
    draft_model.check([reply])
    with pytest.raises(RuntimeError, match="does not run"):
        draft_model.check([])
    draft_model._places.clear()
    with pytest.raises(RuntimeError, match="held for nobody"):
        draft_model.check([])


def test_its_memory_is_that_of_its_slots_and_its_passes_are_measured(tiny_model: Model) -> None:
    draft_model = DraftModel.beside(tiny_model, tiny_model, slots=3)
    assert draft_model.kv_bytes == 3 * tiny_model.context * tiny_model.kv_shape.bytes_per_token
    assert draft_model.times.plain(1) == 0
    draft_model.warm_up()
    assert draft_model.times.plain(1) > 0
    draft_model.check([])
