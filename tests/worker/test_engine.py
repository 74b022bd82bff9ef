"""What every request can count on, whatever else the engine does."""

import time

import pytest
import torch
from torch import Tensor

from cacheplane.identity import BlockChain, Span
from cacheplane.wire import BlockStored
from tests.worker.kv.ledger import replayed
from tests.worker.rig import ACME, BLOCK, GLOBEX, Rig, ask, greedy
from tests.worker.schedules import STEMS, Cold
from worker.kv import Layout
from worker.model import Model
from worker.rows import Row
from worker.tokenizer import Vocabulary
from worker.wire import (
    ErrorFrame,
    Finish,
    GenerateRequest,
    Occupancy,
    ReleaseRequest,
    Sampling,
    SpanWire,
    WorkerError,
)


def test_a_second_request_reuses_every_full_block_but_computes_a_token(rig: Rig, cold: Cold) -> None:
    prompt = STEMS[2]
    first, second = rig.complete(ask(prompt)), rig.complete(ask(prompt))
    assert (first.start.cached.device, second.start.cached.device) == (0, len(prompt) - BLOCK)
    assert second.tokens() == first.tokens() == cold.reply(prompt).tokens()[:4]


def test_what_was_generated_is_reused_by_the_next_turn(rig: Rig, cold: Cold) -> None:
    first = rig.complete(ask(STEMS[0], sampling=greedy(9)))
    turn = [*STEMS[0], *first.tokens(), 50]
    second = rig.complete(ask(turn))
    assert second.start.cached.device == (len(turn) - 2) // BLOCK * BLOCK
    assert second.tokens() == cold.reply(turn).tokens()[:4]


def test_another_namespace_starts_cold(rig: Rig) -> None:
    rig.complete(ask(STEMS[0]))
    assert rig.complete(ask(STEMS[0], namespace=GLOBEX)).start.cached.device == 0
    assert rig.complete(ask(STEMS[0], namespace=GLOBEX)).start.cached.device == 16


def test_stored_blocks_have_the_hashes_that_the_gateway_computes(rig: Rig) -> None:
    reply = rig.complete(ask(STEMS[0], sampling=greedy(9)))
    stored = [digest for event in rig.events if isinstance(event, BlockStored) for digest in event.hashes]
    computed = [*STEMS[0], *reply.tokens()][:-1]  # the last token was never fed back
    assert tuple(stored) == BlockChain.of(computed, ACME, BLOCK).hashes


def test_store_false_leaves_no_block_and_no_event(rig: Rig) -> None:
    rig.complete(ask(STEMS[0], store=False))
    assert (len(rig.memory.tree), rig.events) == (0, [])
    assert rig.complete(ask(STEMS[0])).start.cached.device == 0


def test_sibling_choices_share_the_prompt_and_count_it_once(rig: Rig) -> None:
    sampling = Sampling(max_tokens=5, temperature=1.5, seed=3, ignore_eos=True)
    reply = rig.complete(ask(STEMS[0], n=3, sampling=sampling))
    assert rig.engine.counters.prompt_tokens == len(STEMS[0])
    assert reply.start.cached.device == 0
    assert (reply.end.prompt_tokens, reply.end.completion_tokens) == (len(STEMS[0]), 15)
    assert len({tuple(reply.tokens(index)) for index in range(3)}) == 3
    again = rig.complete(ask(STEMS[0], n=3, sampling=sampling))
    assert [again.tokens(index) for index in range(3)] == [reply.tokens(index) for index in range(3)]


@pytest.mark.parametrize("store", [True, False])
def test_later_siblings_wait_for_the_first_to_compute_the_prompt(rig: Rig, store: bool) -> None:
    rig.submit(ask(STEMS[2], n=3, store=store))
    for _ in range(2):
        rig.engine.step()
        assert [sequence.index for sequence in rig.scheduler.running] == [0]
    rig.scheduler.admit()
    reused = [sequence.holding.reused for sequence in rig.scheduler.running if sequence.holding is not None]
    assert reused == [0, 39, 39]
    rig.run()
    assert rig.scheduler.work.prefilled == 40 + 2
    rig.check_idle()


def test_an_abort_frees_the_slot_at_once(rig: Rig) -> None:
    request = ask(STEMS[0], sampling=greedy(100))
    reply = rig.submit(request)
    for _ in range(3):
        rig.engine.step()
    assert rig.memory.slots.free == 3
    assert rig.engine.abort(request.request_id)
    assert rig.memory.slots.free == 4
    reply.check()
    assert reply.finish().reason == "abort"
    assert not rig.engine.abort(request.request_id)
    assert not rig.engine.step()
    rig.check_idle()


def test_an_abort_of_a_waiting_request_ends_it_with_the_same_frames(
    tiny_model: Model, tiny_vocabulary: Vocabulary
) -> None:
    rig = Rig(tiny_model, tiny_vocabulary, slots=1)
    running, request = rig.submit(ask(STEMS[0])), ask(STEMS[1], n=2)
    waiting = rig.submit(request)
    rig.engine.step()
    assert rig.engine.abort(request.request_id)
    waiting.check(n=2)
    assert (waiting.start.cached.device, waiting.tokens(), waiting.finish(1).reason) == (0, [], "abort")
    rig.run()
    running.check()
    rig.check_idle()


@pytest.mark.parametrize("steps_before", [0, 1, 3])
def test_a_deadline_ends_a_request_wherever_it_is(rig: Rig, steps_before: int) -> None:
    reply = rig.submit(ask(STEMS[2], n=2, sampling=greedy(100)))
    for _ in range(steps_before):
        rig.engine.step()
    rig.scheduler.jobs[next(iter(rig.scheduler.jobs))].deadline = time.monotonic()
    computed = rig.engine.counters.steps
    assert not rig.engine.step()
    assert rig.engine.counters.steps == computed
    reply.check(n=2)
    assert [reply.finish(index).reason for index in range(2)] == ["deadline", "deadline"]
    rig.check_idle()


def test_a_deadline_is_counted_from_arrival(rig: Rig) -> None:
    reply = rig.submit(ask(STEMS[0], deadline_ms=1))
    time.sleep(0.002)
    rig.run()
    reply.check()
    assert (reply.finish().reason, reply.tokens()) == ("deadline", [])


def test_a_full_queue_refuses_and_nothing_of_the_refused_stays(tiny_model: Model, tiny_vocabulary: Vocabulary) -> None:
    rig = Rig(tiny_model, tiny_vocabulary, max_waiting=3)
    replies = [rig.submit(ask(STEMS[0], n=2))]
    with pytest.raises(WorkerError) as caught:
        rig.submit(ask(STEMS[0], n=2))
    assert (caught.value.status, caught.value.code) == (503, "overloaded")
    replies.append(rig.submit(ask(STEMS[0])))
    assert len(rig.scheduler.jobs) == 2
    rig.run()
    replies[0].check(n=2)
    replies[1].check()
    rig.check_idle()


@pytest.mark.parametrize(
    ("request_", "code", "param"),
    [
        (ask([5] * 256), "context", "tokens"),
        (ask([5, 100_000]), "bad_request", "tokens"),
        (ask([5], sampling=Sampling(max_tokens=1, stop_ids=[100_000])), "bad_request", "sampling.stop_ids"),
        (ask([5], sampling=Sampling(max_tokens=1, logit_bias={"100000": 1})), "bad_request", "sampling.logit_bias"),
    ],
)
def test_a_request_that_cannot_run_is_refused_with_the_field(
    rig: Rig, request_: GenerateRequest, code: str, param: str
) -> None:
    with pytest.raises(WorkerError) as caught:
        rig.submit(request_)
    assert (caught.value.status, caught.value.code, caught.value.param) == (400, code, param)
    rig.check_idle()


def test_two_running_requests_never_share_an_id(rig: Rig) -> None:
    reply = rig.submit(ask(STEMS[0], request_id="one"))
    with pytest.raises(WorkerError) as caught:
        rig.submit(ask(STEMS[1], request_id="one"))
    assert (caught.value.status, caught.value.param) == (409, "request_id")
    rig.run()
    reply.check()
    rig.complete(ask(STEMS[1], request_id="one"))


def test_a_released_prefix_is_evicted_before_an_older_one(tiny_model: Model, tiny_vocabulary: Vocabulary) -> None:
    rig = Rig(tiny_model, tiny_vocabulary, blocks=4)
    old, new = [5] * 17, [6] * 17
    rig.complete(ask(old, sampling=greedy(1)))
    rig.complete(ask(new, sampling=greedy(1)))
    assert rig.engine.release(ReleaseRequest(new, [SpanWire(0, ACME.hex)]), [Span(0, ACME)]) == 2
    rig.complete(ask([7] * 17, sampling=greedy(1)))
    assert rig.complete(ask(old, sampling=greedy(1), store=False)).start.cached.device == 16


def test_load_says_what_is_queued_and_running(rig: Rig) -> None:
    for number, stem in enumerate((STEMS[2], STEMS[2], STEMS[0], STEMS[0], STEMS[1])):
        rig.submit(ask([100 + number, *stem], namespace=GLOBEX))
    rig.engine.step()
    load = rig.engine.load
    assert (load.running, load.waiting) == (4, 1)
    assert load.queued_prefill_tokens == 41 + 41 + 25 + 25 + 33 - 32
    assert load.decode_sequences == 0
    rig.run()
    assert rig.engine.load == Occupancy(free_blocks=rig.memory.pool.free)


def test_the_end_of_a_reply_says_what_is_left_to_do_without_it(rig: Rig) -> None:
    longer = rig.submit(ask(STEMS[1], sampling=greedy(9)))
    shorter = rig.complete(ask(STEMS[0], sampling=greedy(2)))
    assert (shorter.end.load.running, shorter.end.load.decode_sequences) == (1, 1)
    assert longer.end.load == rig.engine.load == Occupancy(free_blocks=rig.memory.pool.free)


def test_the_blocks_of_a_reply_are_published_before_its_end(rig: Rig) -> None:
    known: list[int] = []
    rig.engine.submit(ask(STEMS[0], sampling=greedy(9)), [], lambda _: known.append(len(replayed(rig.events))))
    rig.run()
    assert known[-1] == len(rig.memory.tree) == 4


def test_a_step_is_measured_to_the_end_of_what_the_device_computes(
    tiny_model: Model, tiny_vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a clock by which a forward pass takes no time to start, and two seconds to wait for."""
    seconds = 0.0

    def wait() -> None:
        nonlocal seconds
        seconds += 2

    rig = Rig(tiny_model, tiny_vocabulary, budget=32)
    monkeypatch.setattr("worker.engine.time.perf_counter", lambda: seconds)
    monkeypatch.setattr(tiny_model, "wait", wait)
    rig.submit(ask(range(10, 110)))
    assert rig.engine.step()
    assert (rig.engine.counters.prefill_tps, rig.engine.counters.decode_step_ms) == (16, 0)
    rig.run()
    assert rig.engine.counters.decode_step_ms == 2000
    warm = Rig(tiny_model, tiny_vocabulary).engine
    warm.warm_up(tokens=64)
    assert (warm.counters.prefill_tps, warm.counters.decode_step_ms) == (64, 2000)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_request_for_which_the_model_gives_no_numbers_ends_alone(
    rig: Rig, tiny_model: Model, monkeypatch: pytest.MonkeyPatch, temperature: float
) -> None:
    forward = tiny_model.forward

    def spoiled(tokens: list[int], rows: list[Row], layout: Layout) -> Tensor:
        logits = forward(tokens, rows, layout).clone()
        logits[1:] = torch.nan
        return logits

    other = rig.submit(ask(STEMS[0], sampling=greedy(8)))
    reply = rig.submit(ask([7, 8], n=2, sampling=Sampling(max_tokens=8, temperature=temperature)))
    monkeypatch.setattr(tiny_model, "forward", spoiled)
    rig.run()
    assert reply.frames[-1] == ErrorFrame("internal", "the model has given what is no number")
    assert not any(isinstance(frame, Finish) for frame in reply.frames)
    other.check()
    assert len(other.tokens()) == 8
    rig.check_idle()


def test_warm_up_measures_and_leaves_nothing_behind(tiny_model: Model, tiny_vocabulary: Vocabulary, cold: Cold) -> None:
    rig = Rig(tiny_model, tiny_vocabulary, context=48)
    rig.engine.warm_up()
    assert rig.engine.counters.prefill_tps > 0
    assert rig.engine.counters.decode_step_ms > 0
    rig.check_idle()
    assert rig.complete(ask(STEMS[0])).tokens() == cold.reply(STEMS[0]).tokens()[:4]


def test_who_waits_for_the_engines_thread_hears_of_its_end(tiny_model: Model, tiny_vocabulary: Vocabulary) -> None:
    rig = Rig(tiny_model, tiny_vocabulary)
    crashed: list[BaseException] = []
    rig.engine._on_crash = crashed.append
    rig.engine.start()
    waiting = rig.engine.call(lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        waiting.result(timeout=10)
    rig.engine.stop()
    assert [type(error) for error in crashed] == [ZeroDivisionError]


def test_the_engine_outlives_who_no_longer_waits_for_it(tiny_model: Model, tiny_vocabulary: Vocabulary) -> None:
    """As handlers do that a server cancels when it stops; else what memory holds would not come to disk."""
    rig = Rig(tiny_model, tiny_vocabulary)
    crashed: list[BaseException] = []
    rig.engine._on_crash = crashed.append
    rig.engine.call(lambda: None).cancel()
    rig.engine.start()
    assert rig.engine.call(lambda: 1).result(timeout=10) == 1
    rig.engine.stop()
    assert not crashed
    with pytest.raises(WorkerError) as caught:
        rig.engine.call(lambda: 1).result(timeout=10)
    assert (caught.value.status, caught.value.code) == (503, "stopped")
