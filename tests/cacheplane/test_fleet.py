"""Workers' states as time passes and reports come or fail to."""

import pytest

from cacheplane.fleet import (
    GONE_SECONDS,
    SUSPECT_SECONDS,
    TRANSIT_SECONDS,
    Fleet,
    LoadReport,
    Occupancy,
    Worker,
    WorkerState,
)

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
    fleet.charge("w0", 1, 100, 0)
    fleet.join(worker())
    assert states(fleet, 0) == {"w0": WorkerState.JOINING}
    member = fleet.get("w0")
    assert member is not None
    assert member.queued_tokens(0) == 0


def test_a_decision_counts_at_once_and_until_it_is_released() -> None:
    fleet = fleet_of(member := worker())
    fleet.charge("w0", 1, 100, 1.0)
    fleet.charge("w0", 2, 50, 1.0)
    assert (member.queued_tokens(1.0), member.sequences) == (150, 2)
    fleet.prefilled("w0", 1)
    assert (member.queued_tokens(2.0), member.sequences) == (50, 2)
    fleet.release("w0", 1)
    fleet.release("w0", 2)
    fleet.release("w0", 2)
    assert (member.queued_tokens(2.0), member.sequences) == (0, 0)


def test_a_report_takes_over_what_it_can_know_of() -> None:
    fleet = fleet_of(member := worker())
    fleet.charge("w0", 1, 100, 1.0)
    fleet.charge("w0", 2, 50, 2.0)
    report = LoadReport(epoch=1, queued_prefill_tokens=100, decode_sequences=1)
    fleet.observe("w0", report, 2.0 + TRANSIT_SECONDS / 2)
    assert (member.queued_tokens(2.0), member.sequences) == (150, 2)
    fleet.release("w0", 1)  # the report stands for it now
    assert (member.queued_tokens(2.0), member.sequences) == (150, 2)


def test_reported_work_drains_at_the_measured_rate() -> None:
    fleet = fleet_of(member := worker())
    fleet.observe("w0", LoadReport(epoch=1, queued_prefill_tokens=300, prefill_tps=200.0), 5.0)
    assert [member.queued_tokens(now) for now in (5.0, 6.0, 7.0)] == [300, 100, 0]


def test_the_end_of_a_request_refreshes_the_report_at_once() -> None:
    fleet = fleet_of(member := worker())
    fleet.observe("w0", LoadReport(epoch=1, queued_prefill_tokens=300, prefill_tps=200.0, total_blocks=9), 5.0)
    fleet.refresh("w0", Occupancy(running=1, decode_sequences=1, free_blocks=4), 5.1)
    assert member.report == LoadReport(
        epoch=1, running=1, decode_sequences=1, free_blocks=4, prefill_tps=200.0, total_blocks=9
    )
    assert member.queued_tokens(5.1) == 0


def test_a_late_end_does_not_clear_a_suspicion() -> None:
    fleet = fleet_of(worker())
    fleet.failed("w0", 1)
    fleet.refresh("w0", Occupancy(), 2)
    fleet.refresh("unknown", Occupancy(), 2)
    assert states(fleet, 2) == {"w0": WorkerState.SUSPECT}


def test_a_restart_ends_everything_that_was_in_flight() -> None:
    fleet = fleet_of(member := worker())
    fleet.charge("w0", 1, 100, 1.0)
    fleet.observe("w0", LoadReport(epoch=2), 1.0)
    assert (member.queued_tokens(2.0), member.sequences) == (0, 0)


def test_what_is_told_of_a_worker_that_left_is_ignored() -> None:
    fleet = fleet_of(worker())
    fleet.leave("w0")
    fleet.leave("w0")
    fleet.observe("w0", READY, 1)
    fleet.failed("w0", 1)
    fleet.charge("w0", 1, 100, 1)
    fleet.prefilled("w0", 1)
    fleet.release("w0", 1)
    assert fleet.get("w0") is None
    assert fleet.workers(1) == []
