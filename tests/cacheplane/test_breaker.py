"""The circuit breaker, edge by edge; seconds are passed in."""

from hypothesis import given
from hypothesis import strategies as st

from cacheplane.breaker import FIRST_SECONDS, LONGEST_SECONDS, TRIP_FAILURES, Breaker, Circuit


def tripped(times: int = 1) -> tuple[Breaker, float]:
    """(a breaker that has tripped so often, probes failing in between; when it last did)"""
    breaker, now = Breaker(), 0.0
    for _ in range(TRIP_FAILURES):
        breaker = breaker.failed(now)
    for _ in range(times - 1):
        now = breaker.open_until
        breaker = breaker.sent(1, now).failed(now)
    return breaker, now


def test_closed_until_failures_in_a_row() -> None:
    breaker = Breaker()
    for _ in range(3):
        for _ in range(TRIP_FAILURES - 1):
            breaker = breaker.failed(0)
        assert breaker.admits(0)
        breaker = breaker.succeeded(1, 0)  # not in a row any more
    breaker, _ = tripped()
    assert breaker.circuit(0) is Circuit.OPEN
    assert not breaker.admits(0)


def test_open_for_a_time_and_then_half_open_for_one_request() -> None:
    breaker, now = tripped()
    assert not breaker.admits(now + FIRST_SECONDS - 0.001)
    now += FIRST_SECONDS
    assert breaker.circuit(now) is Circuit.HALF_OPEN
    assert breaker.admits(now)
    probing = breaker.sent(7, now)
    assert not probing.admits(now)
    assert probing.sent(8, now) == probing  # the first one is the probe


def test_the_probes_success_closes() -> None:
    breaker, now = tripped(3)
    now = breaker.open_until
    assert breaker.sent(7, now).succeeded(7, now) == Breaker()


def test_the_probes_failure_opens_for_twice_as_long_up_to_a_bound() -> None:
    spans = []
    for times in range(1, 12):
        breaker, now = tripped(times)
        spans.append(breaker.open_until - now)
    assert spans[:4] == [FIRST_SECONDS, 2 * FIRST_SECONDS, 4 * FIRST_SECONDS, 8 * FIRST_SECONDS]
    assert max(spans) == spans[-1] == LONGEST_SECONDS


def test_a_probe_that_told_nothing_lets_the_next_one_try() -> None:
    breaker, _ = tripped()
    now = breaker.open_until
    probing = breaker.sent(7, now)
    assert probing.released(6) == probing
    assert probing.released(7).admits(now)


def test_answers_to_requests_from_before_change_nothing() -> None:
    breaker, now = tripped()
    assert breaker.failed(now) == breaker
    assert breaker.succeeded(3, now) == breaker
    probing = breaker.sent(7, breaker.open_until)
    assert probing.succeeded(3, breaker.open_until) == probing


EVENTS = st.tuples(st.sampled_from(["failed", "succeeded", "sent", "released"]), st.integers(0, 3), st.floats(0, 30))


@given(st.lists(EVENTS, max_size=60))
def test_it_never_stays_open_for_longer_than_the_bound_and_lets_one_through_at_a_time(
    events: list[tuple[str, int, float]],
) -> None:
    breaker, now = Breaker(), 0.0
    for act, decision, pause in events:
        now += pause
        admitted = breaker.admits(now)
        match act:
            case "failed":
                breaker = breaker.failed(now)
            case "succeeded":
                breaker = breaker.succeeded(decision, now)
            case "released":
                breaker = breaker.released(decision)
            case _ if admitted:
                half_open = breaker.circuit(now) is Circuit.HALF_OPEN
                breaker = breaker.sent(decision, now)
                assert breaker.admits(now) is not half_open
            case _:
                pass
        assert breaker.open_until <= now + LONGEST_SECONDS
        assert breaker.circuit(now + LONGEST_SECONDS) is not Circuit.OPEN
