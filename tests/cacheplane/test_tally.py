"""Counts of decisions by mode."""

import pytest

from cacheplane.tally import Tally


def test_what_left_stays_in_the_sums() -> None:
    tally = Tally()
    assert (tally.blind_share, tally.of("w0")) == (0.0, {})
    tally.note("w0", "events")
    tally.note("w1", "approximate")
    tally.note("w1", "load-only")
    tally.forget("w1")
    assert (tally.of("w0"), tally.of("w1")) == ({"events": 1}, {})
    assert tally.blind_share == pytest.approx(2 / 3)
