"""The stopwatch, with a clock of our own."""

import pytest

from gateway.stopwatch import Stopwatch


class Hands:
    """A clock that is moved by hand, in seconds."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_only_the_time_between_pauses_is_our_own() -> None:
    hands = Hands()
    watch = Stopwatch(hands)
    hands.now += 1
    watch.pause()
    hands.now += 10
    assert watch.own_ms == pytest.approx(1000)
    watch.resume()
    hands.now += 2
    assert watch.own_ms == pytest.approx(3000)
    assert watch.total_ms == pytest.approx(13_000)


def test_pausing_and_resuming_twice_is_pausing_and_resuming_once() -> None:
    hands = Hands()
    watch = Stopwatch(hands)
    watch.pause()
    hands.now += 1
    watch.pause()
    hands.now += 1
    watch.resume()
    hands.now += 1
    watch.resume()
    assert watch.own_ms == pytest.approx(1000)
