"""Each data-parallel rank is a holder of its own, and is chosen as one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cacheplane.index import Overlap, PrefixIndex
from cacheplane.placement import Decision, NoWorkerError
from cacheplane.ranks import Ranks, holder, rank_address
from cacheplane.wire import Batch
from cacheplane.worker import Worker
from tests.cacheplane.oracle import keys, restore, snapshot, stored
from tests.cacheplane.stage import Stage, prompt

A, B = b"a" * 16, b"b" * 16


def test_a_rank_is_found_under_its_own_name() -> None:
    index = PrefixIndex(max_blocks=100)
    ranks = Ranks(index, 2)
    restore(ranks, "w0", snapshot())
    ranks.apply("w0", Batch(0.0, [stored(A)], 0))
    ranks.apply("w0", Batch(0.0, [stored(A, B)], 1))
    assert index.match(keys([A, B])) == {"w0/0": Overlap(device=1), "w0/1": Overlap(device=2)}
    assert (index.synced("w0/0"), index.synced("w0/1")) == (True, True)
    ranks.doubt("w0")
    assert not index.synced("w0/1")
    assert ranks.clear("w0", 1) == 1
    assert ranks.clear("w0", 1) == 0
    ranks.drop("w0")
    assert len(index) == 0


def test_an_engine_with_one_rank_goes_by_its_own_name() -> None:
    index = PrefixIndex(max_blocks=100)
    ranks = Ranks(index, 1)
    ranks.apply("w0", Batch(0.0, [stored(A)], None))
    ranks.apply("w0", Batch(0.0, [stored(B)], 0))
    assert (index.blocks("w0"), holder("w0", 0, 1)) == (2, "w0")


def test_a_rank_that_should_not_be_is_counted() -> None:
    index = PrefixIndex(max_blocks=100)
    ranks = Ranks(index, 2)
    ranks.apply("w0", Batch(0.0, [stored(A)], 2))
    ranks.apply("w0", Batch(0.0, [stored(A)], -1))
    assert (ranks.strange, len(index)) == (2, 0)
    with pytest.raises(ValueError, match="at least one"):
        Ranks(index, 0)


def test_a_rank_publishes_on_a_port_of_its_own() -> None:
    assert rank_address("tcp://127.0.0.1:5557", 3) == "tcp://127.0.0.1:5560"
    with pytest.raises(ValueError, match="port"):
        rank_address("ipc:///tmp/events", 1)


def test_the_rank_that_holds_a_prompt_is_chosen_and_named() -> None:
    stage = Stage("w0", "w1", ranks=2)
    stage.hold("w1/1", prompt(1, 400))
    decision = stage.decide(prompt(1, 400))
    assert (decision.worker.id, decision.rank, decision.holder, decision.mode) == ("w1", 1, "w1/1", "events")
    assert (decision.reason, decision.predicted_tokens, decision.available_tokens) == ("prefix", 384, 384)
    assert Stage("w0").decide(prompt(1, 400)).rank is None


def test_a_rank_has_a_queue_of_its_own() -> None:
    stage = Stage("w0", ranks=2)
    first, second = stage.decide(prompt(1, 400)), stage.decide(prompt(2, 400))
    assert {first.rank, second.rank} == {0, 1}
    assert (first.cost.queue_ms, second.cost.queue_ms) == (0, 0)
    assert stage.fleet.queued_tokens("w0", stage.now) == 800
    stage.placement.first_token(first)
    assert stage.decide(prompt(3, 400)).rank == first.rank


def test_work_of_others_is_taken_to_be_spread_over_the_ranks() -> None:
    stage = Stage("w0", ranks=2)
    stage.report("w0", queued_prefill_tokens=300, decode_sequences=3, decode_step_ms=10)
    assert stage.decide(prompt(1, 400)).cost.queue_ms == 150
    assert stage.decide(prompt(2, 400)).cost.decode_ms == 15


def test_a_worker_that_failed_is_left_with_all_of_its_ranks() -> None:
    stage = Stage("w0", ranks=2)
    assert [worker.id for worker in stage.fleet.ready("m", stage.now)] == ["w0"]
    with pytest.raises(NoWorkerError):
        stage.decide(prompt(1, 400), "w0")
    stage.fleet.failed("w0", stage.now)
    with pytest.raises(NoWorkerError):
        stage.decide(prompt(1, 400))


def test_wrong_predictions_take_all_ranks_of_a_worker_out_of_prefix_scoring() -> None:
    stage = Stage("w0", ranks=2)
    stage.hold("w0/1", prompt(1, 400))
    for _ in range(10):
        decision = stage.decide(prompt(1, 400))
        stage.placement.first_token(decision)
        stage.placement.finished(decision, 0)
    decision = stage.decide(prompt(1, 400))
    assert (decision.mode, decision.cost.prefill_ms) == ("load-only", 400)


def test_without_events_each_rank_is_thought_to_hold_what_it_computed() -> None:
    stage = Stage("w0", synced=False, ranks=2)
    homes = {}
    for seed in (1, 2, 3, 4):
        decision = stage.decide(prompt(seed, 400))
        stage.placement.first_token(decision)
        stage.placement.finished(decision, 0)
        stage.now += 60
        homes[seed] = decision.rank
    again = {seed: stage.decide(prompt(seed, 400)) for seed in homes}
    assert {seed: decision.rank for seed, decision in again.items()} == homes
    assert {decision.mode for decision in again.values()} == {"approximate"}
    stage.now += 60
    stage.placement.forget("w0", ranks=2)
    assert stage.decide(prompt(1, 400)).mode == "load-only"


def test_a_worker_has_at_least_one_rank() -> None:
    with pytest.raises(ValueError, match="at least one rank"):
        Worker("w0", "http://w0", "m", "f", ranks=0)


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(20, 400), st.booleans()), max_size=25))
def test_ranks_are_chosen_as_so_many_workers_would_be(requests: list[tuple[int, int, bool]]) -> None:
    together, apart = Stage("w0", ranks=3), Stage("w0/0", "w0/1", "w0/2")

    def outcome(stage: Stage, seed: int, length: int, served: bool) -> Decision:
        return stage.serve(prompt(seed, length)) if served else stage.decide(prompt(seed, length))

    for request in requests:
        one, other = outcome(together, *request), outcome(apart, *request)
        assert one.holder == other.worker.id
        assert (one.cost, one.runner_up, one.reason) == (other.cost, other.runner_up, other.reason)
        assert (one.predicted_tokens, one.mode) == (other.predicted_tokens, other.mode)
