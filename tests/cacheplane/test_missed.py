"""Recently missed work fades with decisions."""

import pytest

from cacheplane.missed import PICKS_PER_WORKER, Missed


def test_work_fades_with_decisions_made_elsewhere() -> None:
    missed = Missed()
    missed.add("w0", 1000, fleet_size=2)
    assert missed.of("w0") == 1000
    assert missed.of("w1") == 0
    for _ in range(2 * PICKS_PER_WORKER):
        missed.add("w1", 10, fleet_size=2)
    assert missed.of("w0") == pytest.approx(1000 / 2.71828, rel=0.01)


def test_work_adds_up_to_a_bound() -> None:
    missed = Missed()
    for _ in range(50 * PICKS_PER_WORKER):
        missed.add("w0", 1, fleet_size=1)
    assert missed.of("w0") == pytest.approx(PICKS_PER_WORKER, rel=0.01)


def test_a_forgotten_worker_starts_from_nothing() -> None:
    missed = Missed()
    missed.add("w0", 1000, fleet_size=1)
    missed.forget("w0")
    missed.forget("w0")
    assert missed.of("w0") == 0
