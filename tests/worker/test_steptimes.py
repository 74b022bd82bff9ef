"""What steps take, learned from those that were computed."""

import pytest

from worker.steptimes import FREE, StepTimes


def test_what_steps_take_is_learned() -> None:
    times = StepTimes()
    for turn in range(300):
        sequences, rows = 1 + turn % 4, turn % 3
        extra = rows * (1 + turn % 5)
        times.observe(sequences, min(rows, sequences), extra, 0.02 + 0.001 * sequences + 0.0005 * extra)
    price = times.terms(2).price
    assert times.plain(2) == pytest.approx(0.022)
    assert price.token * times.plain(2) / 2 == pytest.approx(0.0005, rel=0.2)
    assert price.row < 0.1
    assert times.token == pytest.approx(0.0005, rel=0.2)
    assert times.terms(2).rate == pytest.approx(2 / 0.022)


def test_an_interrupted_step_changes_little() -> None:
    times = StepTimes()
    for _ in range(20):
        times.observe(1, 0, 0, 0.02)
    times.observe(1, 0, 0, 5.0)
    assert times.plain(1) < 0.023


def test_nothing_measured_costs_nothing() -> None:
    assert StepTimes().terms(4) == FREE
    assert FREE.price.length([0.01] * 8) == 8
    assert StepTimes().plain(4) == 0
