"""Placement by expected milliseconds: who is chosen, who is not, and why."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cacheplane.cost import PATIENCE_MS, WORK_PRICE, Cost
from cacheplane.placement import NoWorkerError
from cacheplane.wire import Tier
from tests.cacheplane.stage import Stage, chain, prompt


def test_a_session_returns_to_the_worker_that_holds_it() -> None:
    stage = Stage("w0", "w1", "w2")
    tokens = prompt(1, 400)
    home = stage.serve(tokens).worker.id
    for turn in range(2, 6):
        tokens = tokens + prompt(turn, 100)
        decision = stage.serve(tokens)
        assert (decision.worker.id, decision.reason, decision.mode) == (home, "prefix", "events")
        assert decision.predicted_tokens == decision.available_tokens == (len(tokens) - 100) // 16 * 16


def test_paced_sessions_with_one_system_prompt_spread_over_equal_workers() -> None:
    # Nothing is ever in flight, and the first worker to be used holds what all sessions share.
    stage = Stage("w0", "w1")
    system = prompt(0, 1_400)
    chosen = Counter(stage.serve(system + prompt(session, 200)).worker.id for session in range(1, 449))
    assert min(chosen["w0"], chosen["w1"]) > 448 / 3


def test_short_prompts_spread_over_equal_workers() -> None:
    stage = Stage("w0", "w1")
    chosen = Counter(stage.serve([1, 2, 3]).worker.id for _ in range(100))
    assert min(chosen["w0"], chosen["w1"]) > 30


def test_interleaved_paced_sessions_keep_their_homes() -> None:
    stage = Stage("w0", "w1")
    sessions = {seed: prompt(seed, 600) for seed in range(1, 21)}
    homes = {seed: stage.serve(tokens).worker.id for seed, tokens in sessions.items()}
    assert set(homes.values()) == {"w0", "w1"}
    moved = 0
    for turn in range(1, 11):
        for seed in sessions:
            sessions[seed] += prompt(1000 * turn + seed, 80)
            moved += stage.serve(sessions[seed]).worker.id != homes[seed]
    assert moved == 0


def test_a_busy_holder_loses_when_its_queue_costs_more_than_computing_anew() -> None:
    tokens = prompt(1, 800)
    worth = int(784 * WORK_PRICE)
    stage = Stage("w0", "w1")
    stage.hold("w0", tokens)
    stage.report("w0", queued_prefill_tokens=worth - 100)
    assert stage.decide(tokens).worker.id == "w0"
    stage = Stage("w0", "w1")
    stage.hold("w0", tokens)
    stage.report("w0", queued_prefill_tokens=worth + 100)
    decision = stage.decide(tokens)
    assert (decision.worker.id, decision.reason) == ("w1", "holder-busy")
    assert (decision.predicted_tokens, decision.available_tokens) == (0, 784)
    assert decision.cost == Cost(prefill_ms=800, others_ms=784 * (WORK_PRICE - 1))
    assert decision.runner_up == ("w0", Cost(queue_ms=worth + 100, prefill_ms=16))


def test_nobody_waits_without_end_for_the_sake_of_others() -> None:
    tokens = prompt(1, 8_000)
    stage = Stage("w0", "w1")
    stage.hold("w0", tokens)
    stage.report("w0", queued_prefill_tokens=int(8_000 + PATIENCE_MS))
    assert stage.decide(tokens).worker.id == "w1"


def test_a_slow_worker_is_a_detour_only_for_what_another_one_holds() -> None:
    stage = Stage("w0", "w1")
    stage.report("w0", prefill_tps=100)
    assert stage.decide(prompt(1, 160), "w1").cost == Cost(prefill_ms=1600)


def test_decisions_in_flight_count_at_once() -> None:
    stage = Stage("w0", "w1", "w2", "w3")
    burst = [stage.decide(prompt(seed, 300)).worker.id for seed in range(8)]
    assert sorted(Counter(burst).values()) == [2, 2, 2, 2]


def test_a_first_token_takes_a_prompt_off_the_queue() -> None:
    stage = Stage("w0", "w1")
    first = stage.decide(prompt(1, 300))
    stage.placement.first_token(first)
    costs = dict([stage.decide(prompt(2, 16)).runner_up or ("", None)])
    cost = costs[first.worker.id]
    assert cost is not None
    assert cost.queue_ms == 0


def test_a_burst_of_siblings_goes_where_the_first_one_went() -> None:
    stage = Stage("w0", "w1", "w2")
    tokens = prompt(1, 3_200)
    first = stage.decide(tokens)
    stage.placement.first_token(first)
    siblings = [stage.decide([*tokens, seed]) for seed in range(3)]
    assert {sibling.worker.id for sibling in siblings} == {first.worker.id}
    assert {sibling.reason for sibling in siblings} == {"sibling"}
    assert [sibling.predicted_tokens for sibling in siblings] == [0, 0, 0]  # nothing is confirmed
    stage.now += 60
    assert stage.decide([*tokens, 9]).reason != "sibling"


def test_a_decision_that_failed_draws_no_siblings() -> None:
    stage = Stage("w0", "w1")
    first = stage.decide(prompt(1, 320))
    stage.placement.finished(first, None)
    assert stage.decide(prompt(1, 320)).reason != "sibling"


def test_loading_from_host_beats_computing_and_device_beats_both() -> None:
    stage = Stage("w0", "w1", "w2")
    tokens = prompt(1, 800)
    stage.hold("w1", tokens, Tier.HOST)
    decision = stage.decide(tokens)
    assert decision.worker.id == "w1"
    assert decision.cost.load_ms == pytest.approx(7.84)
    stage = Stage("w0", "w1", "w2")
    stage.hold("w1", tokens, Tier.HOST)
    stage.hold("w2", tokens)
    assert stage.decide(tokens).worker.id == "w2"
    stage = Stage("w0", "w1")
    stage.report("w1", host_tps=500)  # slower than computing
    stage.hold("w1", tokens, Tier.HOST)
    assert stage.decide(tokens).worker.id == "w0"


def test_every_term_of_the_cost_is_in_milliseconds() -> None:
    stage = Stage("w0")
    tokens = prompt(1, 161)
    stage.hold("w0", tokens[:32])
    stage.hold("w0", tokens[:64], Tier.HOST)
    stage.hold("w0", tokens[:96], Tier.DISK)
    stage.report(
        "w0",
        queued_prefill_tokens=50,
        decode_sequences=3,
        decode_step_ms=7,
        prefill_tps=500,
        host_tps=4_000,
        disk_tps=1_000,
    )
    cost = stage.decide(tokens).cost
    assert cost == Cost(queue_ms=100, prefill_ms=2 * 65, load_ms=8 + 32, decode_ms=21)
    assert cost.total_ms == 291


def test_excluded_and_unwell_workers_are_never_chosen() -> None:
    stage = Stage("w0", "w1", "w2")
    tokens = prompt(1, 320)
    stage.hold("w0", tokens)
    stage.hold("w1", tokens)
    stage.fleet.failed("w1", 0)
    decision = stage.decide(tokens, "w0")
    assert (decision.worker.id, decision.reason, decision.runner_up) == ("w2", "only-worker", None)
    assert decision.available_tokens == 304
    with pytest.raises(NoWorkerError, match="'m'"):
        stage.decide(tokens, "w0", "w2")


def test_without_workers_there_is_no_decision() -> None:
    with pytest.raises(NoWorkerError):
        Stage().decide([1, 2, 3])
    with pytest.raises(NoWorkerError):
        Stage("w0").placement.decide("another", chain([]), 3)


@given(st.integers(1, 100), st.integers(0, 6), st.booleans())
def test_no_prediction_is_above_what_a_worker_can_reuse(length: int, held: int, sibling: bool) -> None:
    stage = Stage("w0", "w1")
    tokens = prompt(7, length)
    stage.hold("w1", prompt(7, 16 * held))
    if sibling:
        stage.decide(tokens)
    decision = stage.decide(tokens)
    cap = (length - 1) // 16 * 16
    shared = min(held, length // 16) * 16
    assert decision.available_tokens == min(shared, cap)
    assert decision.predicted_tokens == (min(shared, cap) if decision.worker.id == "w1" else 0)
    assert decision.cost.prefill_ms >= length - cap


def test_replicas_agree_on_ties() -> None:
    order = ["w0", "w1", "w2", "w3"]
    replicas = [Stage(*order), Stage(*reversed(order))]
    for seed in range(50):
        choices = {replica.decide(prompt(seed, 64)).worker.id for replica in replicas}
        assert len(choices) == 1


def test_a_tie_is_called_one_and_unrelated_prompts_share_the_workers() -> None:
    first_choices: Counter[str] = Counter()
    for seed in range(200):
        decision = Stage("w0", "w1").decide(prompt(seed, 64))
        assert decision.reason == "tie"
        first_choices[decision.worker.id] += 1
    assert min(first_choices["w0"], first_choices["w1"]) > 60


def test_a_joining_worker_that_has_measured_nothing_is_taken_to_be_like_the_others() -> None:
    stage = Stage("w0", "w1")
    stage.report("w0", prefill_tps=8_000)
    stage.report("w1", prefill_tps=0)
    chosen = Counter(stage.serve(prompt(seed, 320)).worker.id for seed in range(40))
    assert min(chosen.values()) > 10


def test_a_tripped_worker_is_passed_over_and_one_request_brings_it_back() -> None:
    stage = Stage("w0", "w1")
    tokens = prompt(1, 800)
    stage.hold("w0", tokens)
    for _ in range(3):
        decision = stage.decide(tokens)
        assert decision.worker.id == "w0"
        stage.placement.finished(decision, None)
        stage.fleet.failed("w0", stage.now)
        stage.report("w0")
    assert stage.decide(tokens).worker.id == "w1"
    stage.now += 1.0
    stage.report("w0")
    probe = stage.decide(tokens)
    assert (probe.worker.id, stage.decide(tokens).worker.id) == ("w0", "w1")
    stage.placement.first_token(probe)
    assert stage.decide(tokens).worker.id == "w0"


def test_a_large_fleet_decides_like_a_small_one() -> None:
    stage = Stage(*[f"w{number:03d}" for number in range(300)])
    system = prompt(0, 320)
    for number in range(300):
        stage.hold(f"w{number:03d}", system)
    session = system + prompt(1, 320)
    stage.hold("w123", session)
    decision = stage.decide(session + prompt(2, 64))
    assert (decision.worker.id, decision.reason, decision.predicted_tokens) == ("w123", "prefix", 640)
    assert decision.runner_up is not None


def test_a_less_loaded_worker_is_chosen_for_its_load() -> None:
    stage = Stage("w0", "w1")
    stage.report("w0", decode_sequences=4, decode_step_ms=10)
    decision = stage.decide(prompt(1, 320))
    assert (decision.worker.id, decision.reason, decision.cost.decode_ms) == ("w1", "load", 0)


def test_finishing_twice_releases_once() -> None:
    stage = Stage("w0")
    first, second = stage.decide([1, 2]), stage.decide([1, 2])
    stage.placement.finished(first, None)
    stage.placement.finished(first, None)
    assert second.worker.sequences() == 1
    stage.placement.finished(second, None)
    assert second.worker.sequences() == 0


def test_a_worker_without_figures_is_priced_by_sane_priors() -> None:
    stage = Stage("w0")
    stage.report("w0", prefill_tps=0)
    assert 0 < stage.decide(prompt(1, 320)).cost.prefill_ms < 10_000
