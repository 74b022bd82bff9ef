"""Who gets a slot and what a step computes: every reply, then prompts, with fair shares for every tag."""

from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cacheplane.identity import Namespace
from tests.worker.kv.layouts import LAYOUTS, LayoutClass
from tests.worker.rig import GLOBEX, Reply, Rig, ask, greedy
from worker.claims import PROGRESS
from worker.fairness import reply_cost
from worker.grammar import GrammarCompiler
from worker.model import Model
from worker.tokenizer import Vocabulary
from worker.wire import Frame, Sampling, Start, WorkerError

SLOTS = 4
BLOCKS = 160  # so that over pages, too, nobody but slots and budget is short

arrivals = st.tuples(st.sampled_from("abc"), st.integers(1, 120), st.integers(1, 12), st.integers(0, 20))


def distinct(number: int, size: int) -> list[int]:
    """A prompt that shares no block with another number's."""
    return [3 + number, *[5 + number % 100] * (size - 1)]


def steps(rig: Rig, requests: list[tuple[str, int, int, int]]) -> Iterator[None]:
    """Before each step of a schedule of (tag, prompt tokens, reply tokens, arrival), slots given, until all is done."""
    last = max(arrives for *_, arrives in requests)
    for step in range(2000):
        for number, (tag, size, reply, arrives) in enumerate(requests):
            if arrives == step:
                rig.submit(ask(distinct(number, size), tag=tag, sampling=greedy(reply)))
        rig.scheduler.admit()
        yield
        if not rig.engine.step() and step > last:
            break
    rig.check_idle()


@settings(max_examples=25)
@given(
    prompts=st.lists(st.integers(1, 120), min_size=1, max_size=7),
    arrivals=st.lists(st.integers(0, 6), min_size=7, max_size=7),
    budget=st.integers(2 * SLOTS, 40),
    layout=st.sampled_from(LAYOUTS),
)
def test_decode_is_never_starved_and_the_budget_never_passed(
    tiny_model: Model,
    tiny_vocabulary: Vocabulary,
    prompts: list[int],
    arrivals: list[int],
    budget: int,
    layout: LayoutClass,
) -> None:
    rig = Rig(tiny_model, tiny_vocabulary, slots=SLOTS, budget=budget, blocks=BLOCKS, layout=layout)
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
            assert len(batch.tokens) == min(budget, sum(sequence.pending for sequence in rig.scheduler.running))
        rig.engine.step()
    rig.check_idle()


def test_a_long_prompt_delays_a_reply_by_no_step(
    tiny_model: Model, tiny_vocabulary: Vocabulary, layout: LayoutClass
) -> None:
    rig = Rig(tiny_model, tiny_vocabulary, budget=16, layout=layout)
    reply = rig.submit(ask([9], sampling=greedy(10)))
    rig.engine.step()
    rig.submit(ask([8] * 200))
    for step in range(2, 11):
        rig.engine.step()
        assert len(reply.tokens()) == step
    assert reply.finish().reason == "length"


def test_forced_tokens_are_not_held_up_by_a_prompt_that_came_before(
    tiny_model: Model, tiny_vocabulary: Vocabulary, layout: LayoutClass
) -> None:
    rig = Rig(tiny_model, tiny_vocabulary, budget=16, blocks=BLOCKS, layout=layout)
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


def test_prompts_are_computed_first_come_first_served(
    tiny_model: Model, tiny_vocabulary: Vocabulary, layout: LayoutClass
) -> None:
    rig = Rig(tiny_model, tiny_vocabulary, budget=16, layout=layout)
    replies = [rig.submit(ask([10 + number] * 30, sampling=greedy(1))) for number in range(4)]
    ended: list[int] = []
    while rig.engine.step():
        ended += [number for number, reply in enumerate(replies) if reply.tokens() and number not in ended]
    assert ended == [0, 1, 2, 3]


def test_slots_are_given_in_order_of_arrival(
    tiny_model: Model, tiny_vocabulary: Vocabulary, layout: LayoutClass
) -> None:
    rig = Rig(tiny_model, tiny_vocabulary, slots=1, layout=layout)
    replies = [rig.submit(ask([10 + number] * 3)) for number in range(3)]
    started: list[int] = []
    while rig.engine.step():
        started += [number for number, reply in enumerate(replies) if reply.frames and number not in started]
    assert started == [0, 1, 2]


def test_a_waiting_sibling_does_not_block_who_comes_behind(
    tiny_model: Model, tiny_vocabulary: Vocabulary, layout: LayoutClass
) -> None:
    rig = Rig(tiny_model, tiny_vocabulary, slots=2, budget=16, layout=layout)
    rig.submit(ask([8] * 100, n=2))
    behind = rig.submit(ask([9], namespace=GLOBEX))
    rig.engine.step()
    assert behind.start.prompt_tokens == 1
    rig.run()
    rig.check_idle()


def test_siblings_run_side_by_side_when_the_first_has_computed_their_prompt(rig: Rig) -> None:
    rig.submit(ask([8] * 20, n=3, store=False))
    rig.engine.step()
    rig.scheduler.admit()
    assert len(rig.scheduler.running) == 3
    rig.run()
    assert rig.scheduler.work.prefilled == 20 + 2  # each later one computes the last token, for its logits
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
    assert wanted == [[0], [0], [1]]


# Fair shares


@settings(max_examples=15)
@given(requests=st.lists(arrivals, min_size=2, max_size=12), slots=st.integers(2, 5), layout=st.sampled_from(LAYOUTS))
def test_no_tag_waits_while_another_holds_two_slots_more(
    tiny_model: Model,
    tiny_vocabulary: Vocabulary,
    requests: list[tuple[str, int, int, int]],
    slots: int,
    layout: LayoutClass,
) -> None:
    rig = Rig(tiny_model, tiny_vocabulary, slots=slots, budget=16, blocks=BLOCKS, layout=layout)
    for _ in steps(rig, requests):
        held = Counter(sequence.job.tag for sequence in rig.scheduler.running)
        # Who lost a slot a moment ago may keep the next one until it got a little further.
        free = {one.job.tag for one in rig.scheduler.running if one.is_safe_to_stop}
        assert not rig.scheduler.waiting.lines or rig.memory.slots.free == 0
        for tag in rig.scheduler.waiting.lines:
            assert all(count - held[tag] < 2 for other, count in held.items() if other in free)


@settings(max_examples=15)
@given(requests=st.lists(arrivals, min_size=2, max_size=12), budget=st.integers(8, 32), layout=st.sampled_from(LAYOUTS))
def test_no_prompt_waits_while_a_tag_that_had_more_than_its_share_goes_on(
    tiny_model: Model,
    tiny_vocabulary: Vocabulary,
    requests: list[tuple[str, int, int, int]],
    budget: int,
    layout: LayoutClass,
) -> None:
    """More than its share is more than the least served tag by twice the budget; one token for rounding up."""
    rig = Rig(tiny_model, tiny_vocabulary, slots=SLOTS, budget=budget, blocks=BLOCKS, layout=layout)
    for _ in steps(rig, requests):
        batch = rig.scheduler.next_batch()
        if batch is None:
            continue
        got, short = Counter[str](), set()
        rows = dict(zip(batch.sequences, batch.rows, strict=True))
        for one in rig.scheduler.running:
            count = rows[one].count if one in rows else 0
            if one.prefilling and one.pending > 1:
                got[one.job.tag] += count
                if count < one.pending:
                    short.add(one.job.tag)
        had = {tag: rig.scheduler.fairness[tag].computed for tag in got}
        for behind in short:
            limit = had[behind] + got[behind] + 2 * budget + 1
            assert all(had[tag] + count <= limit for tag, count in got.items() if count and tag != behind)


@settings(max_examples=20)
@given(
    requests=st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 60), st.integers(1, 40)), min_size=4),
    layout=st.sampled_from(LAYOUTS),
)
def test_a_single_slot_serves_tags_that_queue_alike(
    tiny_model: Model, tiny_vocabulary: Vocabulary, requests: list[tuple[str, int, int]], layout: LayoutClass
) -> None:
    """No further apart than the largest prompt, or the slack, and what a sequence does before it can lose its slot."""
    rig = Rig(tiny_model, tiny_vocabulary, slots=1, budget=16, max_waiting=200, layout=layout)
    bound = max(2 * 16, 60) + 3 * reply_cost(PROGRESS, 256)
    for _ in steps(rig, [(*request, 0) for request in requests[:12]]):
        if rig.scheduler.fairness.busy == 2:
            assert abs(rig.scheduler.fairness["a"].asked - rig.scheduler.fairness["b"].asked) <= bound


def started(rig: Rig, requests: list[tuple[str, int, int]]) -> list[int]:
    """The order in which requests that come at once get their slots."""
    order: list[int] = []
    for number, (tag, size, reply) in enumerate(requests):
        request = ask(distinct(number, size), tag=tag, namespace=Namespace(tag.encode() * 32), sampling=greedy(reply))
        rig.engine.submit(request, [], _noting(order, number))
    rig.run()
    rig.check_idle()
    return order


def _noting(order: list[int], number: int) -> Callable[[Frame], None]:
    return lambda frame: order.append(number) if isinstance(frame, Start) else None


@settings(max_examples=25)
@given(
    requests=st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(1, 40), st.integers(1, 4)), min_size=2, max_size=10
    ),
    warm=st.sampled_from("abc"),
    layout=st.sampled_from(LAYOUTS),
)
def test_the_order_of_the_queue_does_not_show_what_another_tag_has_cached(
    tiny_model: Model, tiny_vocabulary: Vocabulary, requests: list[tuple[str, int, int]], warm: str, layout: LayoutClass
) -> None:
    orders = []
    for cached in (False, True):
        rig = Rig(tiny_model, tiny_vocabulary, slots=1, budget=128, blocks=200, layout=layout)
        if cached:
            for number, (tag, size, _) in enumerate(requests):
                if tag == warm:
                    namespace = Namespace(tag.encode() * 32)
                    rig.complete(ask(distinct(number, size), tag=tag, namespace=namespace, sampling=greedy(1)))
        orders.append(started(rig, requests))
    assert orders[0] == orders[1]


def test_a_quiet_tag_is_served_as_if_alone_beside_a_burst(
    tiny_model: Model, tiny_vocabulary: Vocabulary, layout: LayoutClass
) -> None:
    rig = Rig(tiny_model, tiny_vocabulary, budget=32, blocks=BLOCKS, layout=layout)
    for number in range(12):
        rig.submit(ask(distinct(number, 200), tag="acme", sampling=greedy(20)))
    for _ in range(10):
        rig.engine.step()
    for number in range(5):
        quiet = rig.submit(ask(distinct(50 + number, 8), tag="globex", sampling=greedy(3)))
        rig.engine.step()
        assert len(quiet.tokens()) == 1
        for _ in range(8):
            rig.engine.step()
        assert quiet.finish().completion_tokens == 3
    rig.run()
    rig.check_idle()


def test_steps_are_shorter_while_several_tags_are_about(
    tiny_model: Model, tiny_vocabulary: Vocabulary, layout: LayoutClass
) -> None:
    rig = Rig(tiny_model, tiny_vocabulary, budget=32, layout=layout)
    rig.submit(ask(distinct(0, 200), tag="acme"))
    rig.submit(ask(distinct(1, 3), tag="globex", sampling=greedy(1)))
    sizes = []
    for _ in range(3):
        rig.scheduler.admit()
        batch = rig.scheduler.next_batch()
        assert batch is not None
        sizes.append(len(batch.tokens))
        rig.engine.step()
    assert sizes == [16, 16, 16]
    rig.run()
    for number in range(8):
        rig.complete(ask(distinct(2 + number, 3), tag="acme", sampling=greedy(20)))
    rig.submit(ask(distinct(30, 200), tag="acme"))
    rig.scheduler.admit()
    batch = rig.scheduler.next_batch()
    assert batch is not None
    assert len(batch.tokens) == 32


# Priority and the bounds of the queue


def test_a_request_of_low_priority_is_not_starved_by_a_stream_of_high_priority(
    tiny_model: Model, tiny_vocabulary: Vocabulary, layout: LayoutClass, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]
    monkeypatch.setattr("worker.sequence.time.monotonic", lambda: clock[0])
    rig = Rig(tiny_model, tiny_vocabulary, slots=1, max_waiting=200, layout=layout)
    low = rig.submit(ask([9], priority=0, sampling=greedy(1)))
    urgent: list[Reply] = []
    while not low.frames:
        urgent.append(rig.submit(ask([8, 7], priority=80, sampling=greedy(2))))
        for _ in range(2):  # what comes is served, so that nothing but priority makes it wait
            clock[0] += 1
            rig.engine.step()
        assert len(urgent) < 50
    assert 80 <= clock[0] - 1000 <= 84
    rig.run()


def test_a_full_part_of_the_queue_refuses_its_own_tag_only(tiny_model: Model, tiny_vocabulary: Vocabulary) -> None:
    rig = Rig(tiny_model, tiny_vocabulary, max_waiting=8)
    for _ in range(6):
        rig.submit(ask([9], tag="acme"))
    with pytest.raises(WorkerError, match="this tag's part") as caught:
        rig.submit(ask([9], tag="acme"))
    assert (caught.value.status, caught.value.code) == (503, "overloaded")
    rig.submit(ask([9], tag="globex"))
    with pytest.raises(WorkerError, match="the queue is full"):
        rig.submit(ask([9], tag="globex", n=2))
    rig.run()
    rig.check_idle()
