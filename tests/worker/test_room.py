"""Sequences that share a pool over pages: who gives way when it is full, and that everybody comes to an end."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worker.rig import BLOCK, Rig, ask, greedy
from worker.kv import PagedLayout
from worker.model import Model
from worker.tokenizer import Vocabulary
from worker.wire import WorkerError


def paged(model: Model, vocabulary: Vocabulary, *, blocks: int, slots: int = 4) -> Rig:
    return Rig(model, vocabulary, slots=slots, blocks=blocks, budget=16, layout=PagedLayout)


def ids(rig: Rig) -> list[str]:
    return [sequence.job.id for sequence in rig.scheduler.running]


def test_replies_that_outgrow_the_pool_together_take_turns_and_are_what_they_are_alone(
    tiny_model: Model, tiny_vocabulary: Vocabulary
) -> None:
    rig = paged(tiny_model, tiny_vocabulary, blocks=9)
    prompts = [[10 + number] * 10 for number in range(3)]
    replies = [rig.submit(ask(prompt, sampling=greedy(40))) for prompt in prompts]
    rig.run()
    assert rig.scheduler.work.preemptions > 0
    for prompt, reply in zip(prompts, replies, strict=True):
        reply.check()
        alone = paged(tiny_model, tiny_vocabulary, blocks=9).complete(ask(prompt, sampling=greedy(40)))
        assert reply.tokens() == alone.tokens()
    rig.check_idle()


def test_a_sequence_waits_until_there_is_room_for_all_of_it(tiny_model: Model, tiny_vocabulary: Vocabulary) -> None:
    rig = paged(tiny_model, tiny_vocabulary, blocks=8)
    rig.submit(ask([5] * 30, request_id="first", sampling=greedy(6)))
    rig.submit(ask([6] * 31, request_id="second"))
    rig.submit(ask([7] * 5, request_id="third"))
    rig.engine.step()
    assert ids(rig) == ["first"]  # the third could start, but then the second might never
    rig.run()
    rig.check_idle()


def test_a_tag_that_holds_the_pool_makes_room_for_another(tiny_model: Model, tiny_vocabulary: Vocabulary) -> None:
    rig = paged(tiny_model, tiny_vocabulary, blocks=8)
    for number in range(3):
        rig.submit(ask([10 + number] * 8, request_id=f"acme-{number}", tag="acme", sampling=greedy(40)))
    for _ in range(2):
        rig.engine.step()
    assert len(ids(rig)) == 3
    rig.submit(ask([9] * 20, request_id="globex", tag="globex"))
    rig.scheduler.admit()
    assert "globex" in ids(rig)
    rig.run()
    rig.check_idle()


def test_what_could_never_fit_is_refused_with_what_would(tiny_model: Model, tiny_vocabulary: Vocabulary) -> None:
    rig = paged(tiny_model, tiny_vocabulary, blocks=3)
    with pytest.raises(WorkerError, match="the prompt has 24 tokens; this model's context is 24") as caught:
        rig.submit(ask([5] * 3 * BLOCK))
    assert (caught.value.status, caught.value.param) == (400, "tokens")
    reply = rig.complete(ask([5] * (3 * BLOCK - 1), sampling=greedy(40)))
    assert reply.finish().completion_tokens == 1
    rig.check_idle()


def test_choices_fork_the_prompt_and_hold_one_block_more_each(tiny_model: Model, tiny_vocabulary: Vocabulary) -> None:
    rig = paged(tiny_model, tiny_vocabulary, blocks=20)
    rig.submit(ask([5] * 60, n=4, sampling=greedy(3)))
    while len(ids(rig)) < 4:
        rig.engine.step()
    assert rig.memory.pool.total - rig.memory.pool.available <= 8 + 3
    rig.run()
    rig.check_idle()


@settings(max_examples=15)
@given(
    requests=st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(1, 40), st.integers(1, 40), st.integers(0, 10), st.booleans()),
        min_size=2,
        max_size=8,
    ),
    blocks=st.integers(11, 16),
    slots=st.integers(2, 5),
)
def test_everybody_comes_to_an_end(
    tiny_model: Model,
    tiny_vocabulary: Vocabulary,
    requests: list[tuple[str, int, int, int, bool]],
    blocks: int,
    slots: int,
) -> None:
    """Whatever comes together, and with blocks that are kept or not; nobody computes a prompt over and over."""
    rig = paged(tiny_model, tiny_vocabulary, blocks=blocks, slots=slots)
    replies = []
    for step in range(1500):
        for number, (tag, size, reply, arrives, store) in enumerate(requests):
            if arrives == step:
                request = ask([10 + number] * size, tag=tag, sampling=greedy(reply), store=store)
                replies.append((rig.submit(request), reply))
        if not rig.engine.step() and step > 10:
            break
    for found, length in replies:
        found.check()
        assert found.finish().completion_tokens == length
    rig.check_idle()
    assert Counter(one.finish().reason for one, _ in replies) == {"length": len(requests)}
