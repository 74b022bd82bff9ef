"""The moving average of copies."""

import pytest

from worker.kv.rate import CopyRate


def test_a_rate_is_unknown_before_the_first_copy() -> None:
    assert CopyRate().gbps == 0.0


def test_equal_copies_give_their_rate() -> None:
    rate = CopyRate()
    for _ in range(5):
        rate.observe(2_000_000_000, 0.5)
    assert rate.gbps == pytest.approx(4.0)


def test_a_change_of_speed_is_followed() -> None:
    rate = CopyRate()
    rate.observe(10**9, 0.1)
    for _ in range(100):
        rate.observe(10**9, 1.0)
    assert rate.gbps == pytest.approx(1.0, rel=0.01)


def test_a_copy_that_took_no_time_divides_nothing() -> None:
    rate = CopyRate()
    rate.observe(1, 0.0)
    assert rate.gbps == 0.0


def test_a_rate_that_copies_are_not_made_for_is_measured_anew_after_a_while() -> None:
    rate = CopyRate()
    assert rate.is_stale
    rate.observe(10**9, 1000.0)
    for _ in range(64):
        assert not rate.is_stale
        rate.avoid()
    assert rate.is_stale
    rate.observe(10**9, 0.5)
    assert rate.gbps == pytest.approx(2.0)
    assert not rate.is_stale
