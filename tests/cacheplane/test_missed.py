"""Recently missed work fades with decisions."""

import pytest

from cacheplane.fleet import Fleet
from cacheplane.missed import PICKS_PER_WORKER, Missed
from cacheplane.report import LoadReport
from cacheplane.worker import Worker


def test_work_fades_with_decisions_made_elsewhere() -> None:
    missed = Missed()
    assert missed.of("w1") == 0
    missed.add("w0", 1000, fleet_size=2)
    assert missed.of("w0") == pytest.approx(1000)
    for _ in range(2 * PICKS_PER_WORKER):
        missed.add("w1", 10, fleet_size=2)
    assert missed.of("w0") == pytest.approx(1000 / 2.71828, rel=0.01)


def test_work_adds_up_to_a_bound_however_long_it_goes_on() -> None:
    missed = Missed()
    for _ in range(150 * PICKS_PER_WORKER):
        missed.add("w0", 1, fleet_size=1)
    assert missed.of("w0") == pytest.approx(PICKS_PER_WORKER, rel=0.01)


def test_a_new_worker_starts_from_the_mean_of_the_others() -> None:
    missed = Missed()
    for name in ("w0", "w1"):
        assert missed.of(name) == 0
    missed.add("w0", 1000, fleet_size=2)
    missed.add("w1", 500, fleet_size=2)
    assert missed.of("w2") == pytest.approx(750, rel=0.01)
    missed.forget("w0")
    missed.forget("w0")
    missed.forget("unknown")
    assert missed.of("w0") == pytest.approx((500 + 750) / 2, rel=0.01)


def test_a_line_is_answered_in_its_own_order() -> None:
    fleet, missed = Fleet(), Missed()
    for number in reversed(range(40)):
        fleet.join(Worker(f"w{number:02d}", "", "m", "f"))
        fleet.observe(f"w{number:02d}", LoadReport(epoch=1), 0.0)
        assert missed.of(f"w{number:02d}") == 0
    missed.add("w07", 100, fleet_size=40)
    for _ in range(2):
        along = missed.along(fleet.line("m", 0.0))
        assert [place for place, work in enumerate(along) if work] == [7]
    missed.forget("w07")
    assert missed.along(fleet.line("m", 0.0)).tolist() == [0.0] * 40
