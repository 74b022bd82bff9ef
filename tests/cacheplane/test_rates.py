"""Prefill rates from what we see."""

import math

import pytest

from cacheplane.rates import ENOUGH, FADE, MIN_TOKENS, PrefillRate


def test_a_rate_counts_from_enough_observations_on() -> None:
    rate = PrefillRate()
    for _ in range(ENOUGH):
        assert rate.tps == 0.0
        rate.observe(1000, 2.0)
    assert rate.tps == pytest.approx(500)


def test_short_prompts_and_impossible_times_say_nothing() -> None:
    rate = PrefillRate()
    for _ in range(ENOUGH):
        rate.observe(MIN_TOKENS - 1, 1.0)
        rate.observe(1000, 0.0)
        rate.observe(1000, -1.0)
        rate.observe(1000, math.inf)
        rate.observe(1000, math.nan)
    assert rate.tps == 0.0


def test_it_follows_a_change() -> None:
    rate = PrefillRate()
    for _ in range(50):
        rate.observe(1000, 1.0)
    for _ in range(50):
        rate.observe(1000, 0.5)
    assert rate.tps == pytest.approx(2000, rel=2 * FADE**50)
