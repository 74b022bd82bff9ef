"""What a step computes: every reply first, then as much of the prompts as the budget leaves."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worker.rig import GLOBEX, Rig, ask, greedy
from worker.grammar import GrammarCompiler
from worker.model import Model
from worker.tokenizer import Vocabulary
from worker.wire import Sampling

SLOTS = 4


@settings(max_examples=25)
@given(
    prompts=st.lists(st.integers(1, 120), min_size=1, max_size=7),
    arrivals=st.lists(st.integers(0, 6), min_size=7, max_size=7),
    budget=st.integers(2 * SLOTS, 40),
)
def test_decode_is_never_starved_and_the_budget_never_passed(
    tiny_model: Model, tiny_vocabulary: Vocabulary, prompts: list[int], arrivals: list[int], budget: int
) -> None:
    rig = Rig(tiny_model, tiny_vocabulary, slots=SLOTS, budget=budget)
    for step in range(400):
        for number, (size, arrives) in enumerate(zip(prompts, arrivals, strict=False)):
            if arrives == step:
                rig.submit(ask([10 + number] * size, sampling=greedy(5)))
        rig.scheduler.admit()
        batch = rig.scheduler.next_batch()
        if batch is None and step > max(arrivals):
            break
        if batch is not None:
            assert len(batch.tokens) == sum(row.count for row in batch.rows) <= budget
            assert [row.count > 1 for row in batch.rows] == sorted(row.count > 1 for row in batch.rows)
            decoding = [sequence for sequence in rig.scheduler.running if sequence.pending == 1]
            assert all(sequence in batch.sequences for sequence in decoding)
            assert len(batch.tokens) == min(budget, sum(sequence.pending for sequence in rig.scheduler.running)) or (
                len(batch.tokens) == budget - 1  # a prompt's last free place is left empty rather than split to one
            )
        rig.engine.step()
    rig.check_idle()


def test_a_long_prompt_delays_a_reply_by_no_step(tiny_model: Model, tiny_vocabulary: Vocabulary) -> None:
    rig = Rig(tiny_model, tiny_vocabulary, budget=16)
    reply = rig.submit(ask([9], sampling=greedy(10)))
    rig.engine.step()
    rig.submit(ask([8] * 200))
    for step in range(2, 11):
        rig.engine.step()
        assert len(reply.tokens()) == step
    assert reply.finish().reason == "length"


def test_forced_tokens_are_not_held_up_by_a_prompt_that_came_before(
    tiny_model: Model, tiny_vocabulary: Vocabulary
) -> None:
    rig = Rig(tiny_model, tiny_vocabulary, budget=16)
    grammar = GrammarCompiler(tiny_vocabulary).compile('start: (LETTER ": forced, ")+\nLETTER: /[xyz]/')
    prompt = rig.submit(ask([8] * 200))
    no_end = {str(token): -100.0 for token in tiny_vocabulary.stop_ids}
    reply = rig.submit(ask([9], sampling=Sampling(max_tokens=200, temperature=0, logit_bias=no_end)), [grammar])
    rig.engine.step()
    for _ in range(5):
        before = len(reply.tokens())
        rig.engine.step()
        assert len(reply.tokens()) > before
    assert prompt.tokens() == []


def test_prompts_are_computed_first_come_first_served(tiny_model: Model, tiny_vocabulary: Vocabulary) -> None:
    rig = Rig(tiny_model, tiny_vocabulary, budget=16)
    replies = [rig.submit(ask([10 + number] * 30, sampling=greedy(1))) for number in range(4)]
    ended: list[int] = []
    while rig.engine.step():
        ended += [number for number, reply in enumerate(replies) if reply.tokens() and number not in ended]
    assert ended == [0, 1, 2, 3]


def test_slots_are_given_in_order_of_arrival(tiny_model: Model, tiny_vocabulary: Vocabulary) -> None:
    rig = Rig(tiny_model, tiny_vocabulary, slots=1)
    replies = [rig.submit(ask([10 + number] * 3)) for number in range(3)]
    started: list[int] = []
    while rig.engine.step():
        started += [number for number, reply in enumerate(replies) if reply.frames and number not in started]
    assert started == [0, 1, 2]


def test_a_waiting_sibling_does_not_block_who_comes_behind(tiny_model: Model, tiny_vocabulary: Vocabulary) -> None:
    rig = Rig(tiny_model, tiny_vocabulary, slots=2, budget=16)
    rig.submit(ask([8] * 100, n=2))
    behind = rig.submit(ask([9], namespace=GLOBEX))
    rig.engine.step()
    assert behind.start.prompt_tokens == 1
    rig.run()
    rig.check_idle()


def test_siblings_that_store_nothing_run_side_by_side(rig: Rig) -> None:
    rig.submit(ask([8] * 20, n=3, store=False))
    rig.scheduler.admit()
    assert len(rig.scheduler.running) == 3
    rig.run()
    rig.check_idle()


@pytest.mark.parametrize("n", [1, 2])
def test_only_the_last_chunk_of_a_prompt_wants_logits(rig: Rig, n: int) -> None:
    rig.submit(ask([8] * 70, n=n))
    wanted = []
    for _ in range(3):
        rig.scheduler.admit()
        batch = rig.scheduler.next_batch()
        assert batch is not None
        wanted.append([row.wanted for row in batch.rows if row.count > 1])
        rig.engine.step()
    assert wanted == [[False], [False], [True]]
