"""Predicted against delivered reuse, and what follows from it."""

from hypothesis import given
from hypothesis import strategies as st

from cacheplane.parity import ENOUGH, RIGHT_SHARE, WINDOW, WRONG_SHARE, Parity, Verdict


def noted(*pairs: tuple[int, int]) -> Parity:
    parity = Parity()
    for predicted, delivered in pairs:
        parity.note("w0", predicted, delivered)
    return parity


WRONG, RIGHT = (100, 0), (100, 100)


def test_less_than_predicted_is_a_mismatch_and_more_is_not() -> None:
    record = noted((64, 64), (64, 32), (0, 48)).of("w0")
    assert (record.requests, record.predicted, record.delivered, record.mismatches) == (3, 128, 144, 1)
    assert record.missing_share == 0.25


def test_workers_have_records_of_their_own() -> None:
    parity = noted(*[WRONG] * ENOUGH)
    parity.note("w1", 16, 16)
    assert parity.suspended == {"w0"}
    assert parity.of("w2").requests == 0
    parity.forget("w0")
    parity.forget("w0")
    assert (parity.of("w0").requests, parity.suspended) == (0, set())


def test_a_worker_whose_predictions_are_wrong_beyond_the_bound_is_suspended() -> None:
    parity = noted(*[WRONG] * (ENOUGH - 1))
    assert parity.of("w0").verdict is Verdict.TRUSTED
    parity.note("w0", *WRONG)
    assert (parity.of("w0").verdict, parity.of("w0").suspensions) == (Verdict.SUSPENDED, 1)
    edge = int(100 * (1 - WRONG_SHARE))
    assert noted(*[(100, edge)] * WINDOW).suspended == set()
    assert noted(*[(100, edge - 1)] * ENOUGH).suspended == {"w0"}


def test_more_reuse_than_predicted_and_prompts_without_a_prediction_are_no_reason() -> None:
    assert noted(*[(0, 0), (0, 500), (16, 500)] * WINDOW).suspended == set()


def test_right_shadow_predictions_bring_it_back() -> None:
    parity = noted(*[WRONG] * ENOUGH)
    for _ in range(WINDOW):
        parity.note("w0", *WRONG)
    assert parity.suspended == {"w0"}
    for _ in range(ENOUGH):
        assert parity.suspended == {"w0"}
        parity.note("w0", *RIGHT)
    assert parity.suspended == set()


def test_nearly_right_is_not_right() -> None:
    parity = noted(*[WRONG] * ENOUGH)
    for _ in range(WINDOW):
        parity.note("w0", 100, int(100 * (1 - RIGHT_SHARE)) - 1)
    assert parity.suspended == {"w0"}


def test_a_new_snapshot_brings_it_back_once() -> None:
    parity = noted(*[WRONG] * ENOUGH)
    parity.resynced("w0")
    assert parity.suspended == set()
    for _ in range(ENOUGH):
        parity.note("w0", *WRONG)
    parity.resynced("w0")
    assert parity.suspended == {"w0"}  # events were not lost: it is something else
    for _ in range(ENOUGH):
        parity.note("w0", *RIGHT)
    for _ in range(WINDOW):
        parity.note("w0", *WRONG)
    assert parity.of("w0").suspensions == 3
    parity.resynced("w0")
    assert parity.suspended == set()
    parity.resynced("w0")
    parity.resynced("unknown")
    assert parity.of("w0").verdict is Verdict.TRUSTED


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=200))
def test_the_share_is_that_of_the_window(pairs: list[tuple[int, int]]) -> None:
    parity, since = Parity(), list[tuple[int, int]]()
    for predicted, delivered in pairs:
        before = parity.of("w0").verdict
        parity.note("w0", predicted, delivered)
        since += [(predicted, delivered)] if predicted else []
        if before is not parity.of("w0").verdict:
            since.clear()
        if before is Verdict.TRUSTED and since:
            last = since[-WINDOW:]
            missing = sum(max(0, one - other) for one, other in last) / sum(one for one, _ in last)
            assert abs(parity.of("w0").missing_share - missing) < 1e-9
        if parity.of("w0").verdict is Verdict.SUSPENDED:
            since = since[-ENOUGH + 1 :]
