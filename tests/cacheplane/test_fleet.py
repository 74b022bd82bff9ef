"""Workers' states as time passes and reports come or fail to."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cacheplane.breaker import FIRST_SECONDS, TRIP_FAILURES
from cacheplane.fleet import GONE_SECONDS, SUSPECT_SECONDS, Fleet
from cacheplane.report import LoadReport, Occupancy
from cacheplane.worker import TRANSIT_SECONDS, Worker, WorkerState

READY = LoadReport(epoch=1)


def worker(name: str = "w0", fingerprint: str = "f1", model: str = "m") -> Worker:
    return Worker(name, f"http://127.0.0.1/{name}", model, fingerprint)


def fleet_of(*workers: Worker) -> Fleet:
    fleet = Fleet()
    for member in workers:
        fleet.join(member)
        fleet.observe(member.id, READY, 0.0)
    return fleet


def states(fleet: Fleet, now: float) -> dict[str, WorkerState]:
    return {member.id: member.state for member in fleet.workers(now)}


def names(fleet: Fleet, now: float, model: str = "m") -> list[str]:
    return [member.id for member in fleet.ready(model, now)]


def test_a_worker_joins_and_is_ready_when_it_says_so() -> None:
    fleet = Fleet()
    fleet.join(worker())
    assert states(fleet, 0) == {"w0": WorkerState.JOINING}
    fleet.observe("w0", LoadReport(epoch=1, state="starting"), 1)
    assert states(fleet, 1) == {"w0": WorkerState.JOINING}
    fleet.observe("w0", READY, 2)
    assert names(fleet, 2) == ["w0"]


@pytest.mark.parametrize(
    ("silence", "state"),
    [
        (SUSPECT_SECONDS, WorkerState.READY),
        (SUSPECT_SECONDS + 0.1, WorkerState.SUSPECT),
        (GONE_SECONDS, WorkerState.SUSPECT),
        (GONE_SECONDS + 0.1, WorkerState.GONE),
    ],
)
def test_silence_makes_a_worker_suspect_and_then_gone(silence: float, state: WorkerState) -> None:
    fleet = fleet_of(worker())
    assert states(fleet, silence) == {"w0": state}
    fleet.observe("w0", READY, silence)
    assert names(fleet, silence) == ["w0"]


def test_a_failed_request_is_suspicion_at_once_and_a_report_ends_it() -> None:
    fleet = fleet_of(worker(), worker("w1"))
    fleet.failed("w0", 0.5)
    assert names(fleet, 0.5) == ["w1"]
    assert states(fleet, 0.5)["w0"] is WorkerState.SUSPECT
    fleet.observe("w0", READY, 1.0)
    assert names(fleet, 1.0) == ["w0", "w1"]
    member = fleet.get("w0")
    assert member is not None
    assert member.failures == 1


def test_a_request_that_fails_before_any_report_is_suspicion_too() -> None:
    fleet = Fleet()
    fleet.join(worker())
    fleet.failed("w0", 0)
    assert states(fleet, 0) == {"w0": WorkerState.SUSPECT}


def test_a_draining_worker_is_given_nothing_new() -> None:
    fleet = fleet_of(worker(), worker("w1"))
    fleet.observe("w0", LoadReport(epoch=1, state="draining"), 1)
    assert names(fleet, 1) == ["w1"]
    assert states(fleet, 1)["w0"] is WorkerState.DRAINING


def test_the_first_ready_fingerprint_is_the_model_until_none_of_it_is_left() -> None:
    fleet = fleet_of(worker("w0", "old"), worker("w1", "old"), worker("w2", "new"))
    assert names(fleet, 0) == ["w0", "w1"]
    assert states(fleet, 0)["w2"] is WorkerState.MISMATCH
    fleet.failed("w0", 1)
    fleet.failed("w1", 1)
    assert names(fleet, 1) == []  # suspects may be back with the next report; nothing is mixed meanwhile
    fleet.leave("w0")
    fleet.observe("w2", READY, GONE_SECONDS + 1)
    assert names(fleet, GONE_SECONDS + 1) == ["w2"]
    fleet.observe("w1", READY, GONE_SECONDS + 2)
    assert states(fleet, GONE_SECONDS + 2) == {"w1": WorkerState.MISMATCH, "w2": WorkerState.READY}


def test_a_worker_that_is_not_ready_yet_does_not_decide_what_the_model_is() -> None:
    fleet = Fleet()
    fleet.join(worker("w0", "slow"))
    fleet.join(worker("w1", "quick"))
    fleet.observe("w1", READY, 0)
    fleet.observe("w0", READY, 1)
    assert names(fleet, 1) == ["w1"]


def test_models_do_not_mix() -> None:
    fleet = fleet_of(worker("w0", "f1", "m"), worker("w1", "f2", "n"))
    assert (names(fleet, 0, "m"), names(fleet, 0, "n"), names(fleet, 0, "other")) == (["w0"], ["w1"], [])


def test_joining_again_starts_a_worker_afresh() -> None:
    fleet = fleet_of(worker())
    fleet.charge("w0", 1, 100, 100, 0)
    fleet.join(worker())
    assert states(fleet, 0) == {"w0": WorkerState.JOINING}
    assert fleet.queued_tokens("w0", 0) == 0


def test_a_decision_counts_at_once_and_until_it_is_released() -> None:
    fleet = fleet_of(member := worker())
    fleet.charge("w0", 1, 110, 100, 1.0)
    fleet.charge("w0", 2, 50, 50, 1.0)
    assert (fleet.queued_tokens("w0", 1.0), member.sequences()) == (150, 2)
    fleet.prefilled("w0", 1, 2.0)
    assert (fleet.queued_tokens("w0", 2.0), member.sequences()) == (50, 2)
    fleet.release("w0", 1)
    fleet.release("w0", 2)
    fleet.release("w0", 2)
    assert (fleet.queued_tokens("w0", 2.0), member.sequences()) == (0, 0)


def test_a_report_tells_of_the_work_of_others_and_our_own_is_known_better() -> None:
    fleet = fleet_of(member := worker())
    fleet.charge("w0", 1, 100, 20, 1.0)  # most of it is cached, which a report of a waiting prompt does not know
    fleet.charge("w0", 2, 50, 50, 2.0)
    report = LoadReport(epoch=1, queued_prefill_tokens=130, decode_sequences=1)
    fleet.observe("w0", report, 2.0 + TRANSIT_SECONDS / 2)
    assert (fleet.queued_tokens("w0", 2.0), member.sequences()) == (20 + 30 + 50, 2)
    fleet.prefilled("w0", 1, 2.1)
    assert fleet.queued_tokens("w0", 2.1) == 30 + 50


def test_the_work_of_others_drains_at_the_measured_rate() -> None:
    fleet = fleet_of(worker())
    fleet.observe("w0", LoadReport(epoch=1, queued_prefill_tokens=300, prefill_tps=200.0), 5.0)
    assert [fleet.queued_tokens("w0", now) for now in (5.0, 6.0, 7.0)] == [300, 100, 0]


def test_of_our_own_work_only_the_oldest_prompt_drains_so_that_a_stuck_worker_keeps_its_queue() -> None:
    fleet = fleet_of(worker())
    fleet.observe("w0", LoadReport(epoch=1, prefill_tps=100.0), 0.0)
    for decision in (1, 2, 3):
        fleet.charge("w0", decision, 200, 200, 0.0)
    assert [fleet.queued_tokens("w0", now) for now in (0.0, 1.0, 2.0, 60.0)] == [600, 500, 400, 400]
    fleet.prefilled("w0", 1, 60.0)
    assert [fleet.queued_tokens("w0", now) for now in (60.0, 61.0, 99.0)] == [400, 300, 200]


def test_the_end_of_a_request_refreshes_the_report_at_once() -> None:
    fleet = fleet_of(member := worker())
    fleet.observe("w0", LoadReport(epoch=1, queued_prefill_tokens=300, prefill_tps=200.0, total_blocks=9), 5.0)
    fleet.refresh("w0", Occupancy(running=1, decode_sequences=1, free_blocks=4), 5.1)
    assert member.report == LoadReport(
        epoch=1, running=1, decode_sequences=1, free_blocks=4, prefill_tps=200.0, total_blocks=9
    )
    assert fleet.queued_tokens("w0", 5.1) == 0


def test_a_prefill_rate_is_learned_from_first_tokens_and_the_workers_own_figure_counts_more() -> None:
    fleet = fleet_of(member := worker())
    for decision in range(3):
        assert member.prefill_tps == 0
        fleet.charge("w0", decision, 1000, 500, 10.0 * decision)
        fleet.prefilled("w0", decision, 10.0 * decision + 2)
        fleet.release("w0", decision)
    assert member.prefill_tps == pytest.approx(250)
    fleet.observe("w0", LoadReport(epoch=1, prefill_tps=300.0), 60.0)
    assert member.prefill_tps == 300


def test_prompts_that_wait_for_each_other_are_timed_from_when_their_turn_came() -> None:
    fleet = fleet_of(member := worker())
    for decision in range(4):
        fleet.charge("w0", decision, 100, 100, 0.0)
    for decision in range(4):
        fleet.prefilled("w0", decision, 1.0 + decision)
    assert member.prefill_tps == pytest.approx(100)


def test_a_late_end_does_not_clear_a_suspicion() -> None:
    fleet = fleet_of(worker())
    fleet.unreachable("w0")
    fleet.refresh("w0", Occupancy(), 2)
    fleet.refresh("unknown", Occupancy(), 2)
    assert states(fleet, 2) == {"w0": WorkerState.SUSPECT}


def test_a_restart_ends_everything_that_was_in_flight() -> None:
    fleet = fleet_of(member := worker())
    fleet.charge("w0", 1, 100, 100, 1.0)
    fleet.observe("w0", LoadReport(epoch=2), 1.0)
    assert (fleet.queued_tokens("w0", 2.0), member.sequences()) == (0, 0)


def test_what_is_told_of_a_worker_that_left_is_ignored() -> None:
    fleet = fleet_of(worker())
    fleet.leave("w0")
    fleet.leave("w0")
    fleet.observe("w0", READY, 1)
    fleet.failed("w0", 1)
    fleet.charge("w0", 1, 100, 100, 1)
    fleet.prefilled("w0", 1, 1)
    fleet.release("w0", 1)
    assert fleet.get("w0") is None
    assert fleet.workers(1) == []


def test_a_worker_where_requests_keep_failing_is_left_alone_and_then_tried_by_one_request() -> None:
    fleet = fleet_of(worker(), worker("w1"))
    for at in range(TRIP_FAILURES):
        fleet.observe("w0", READY, float(at))  # it reports as if nothing were wrong
        assert "w0" in names(fleet, float(at))
        fleet.failed("w0", float(at))
    tripped = float(TRIP_FAILURES - 1)
    fleet.observe("w0", READY, tripped)
    fleet.observe("w1", READY, tripped)
    assert states(fleet, tripped)["w0"] is WorkerState.TRIPPED
    assert names(fleet, tripped) == ["w1"]

    later = tripped + FIRST_SECONDS
    assert states(fleet, later)["w0"] is WorkerState.PROBING
    assert names(fleet, later) == ["w0", "w1"]
    fleet.charge("w0", 7, 10, 10, later)
    assert names(fleet, later) == ["w1"]  # the probe is on its way
    fleet.release("w0", 7)
    assert names(fleet, later) == ["w0", "w1"]  # it told nothing; another may try
    fleet.charge("w0", 8, 10, 10, later)
    fleet.prefilled("w0", 8, later)
    assert states(fleet, later)["w0"] is WorkerState.READY


def test_a_missed_heartbeat_is_no_failed_request() -> None:
    fleet = fleet_of(worker())
    for at in range(2 * TRIP_FAILURES):
        fleet.unreachable("w0")
        assert names(fleet, float(at)) == []
        fleet.observe("w0", READY, float(at))
    assert names(fleet, 5.0) == ["w0"]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["observe", "fail", "unreach", "charge", "token", "end", "join", "leave"]),
            st.integers(0, 2),
            st.floats(0, 4),
        ),
        max_size=40,
    )
)
def test_states_that_are_kept_are_the_states_that_would_be_worked_out_anew(
    history: list[tuple[str, int, float]],
) -> None:
    fleet, now = Fleet(), 0.0
    for step, (act, number, pause) in enumerate(history):
        now, name = now + pause, f"w{number}"
        match act:
            case "observe":
                fleet.observe(name, LoadReport(epoch=1, state="draining" if step % 7 == 6 else "ready"), now)
            case "fail":
                fleet.failed(name, now)
            case "unreach":
                fleet.unreachable(name)
            case "charge":
                fleet.charge(name, step, 10, 10, now)
            case "token":
                fleet.prefilled(name, step - 1, now)
            case "end":
                fleet.release(name, step - 1)
            case "join":
                fleet.join(worker(name))
            case _:
                fleet.leave(name)
        kept = (names(fleet, now), states(fleet, now))
        for known in fleet._models.values():
            known.line = None
        assert (names(fleet, now), states(fleet, now)) == kept


def test_rows_of_workers_that_left_are_used_again() -> None:
    fleet = Fleet()
    for number in range(1000):
        fleet.join(worker(f"w{number}"))
        fleet.leave(f"w{number}")
    for number in range(40):
        fleet.join(worker(f"w{number}"))
        fleet.observe(f"w{number}", LoadReport(epoch=1, queued_prefill_tokens=number), 0.0)
    assert [fleet.queued_tokens(f"w{number}", 0.0) for number in range(40)] == list(range(40))
    assert fleet._gauges.table.shape[1] == 64
