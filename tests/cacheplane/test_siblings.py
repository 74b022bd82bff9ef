"""Our own fresh decisions, and how soon they are forgotten."""

from hypothesis import given
from hypothesis import strategies as st

from cacheplane.siblings import Siblings

CHAIN = [bytes([value]) * 16 for value in range(6)]


def test_a_decision_is_expected_to_be_held_by_its_worker() -> None:
    siblings = Siblings(lifetime=10)
    siblings.remember(1, "w0", CHAIN[:3], now=0)
    siblings.remember(2, "w1", CHAIN[:1], now=0)
    assert siblings.match(CHAIN, now=5) == {"w0": 3, "w1": 1}
    assert siblings.match([b"x", *CHAIN], now=5) == {}


def test_a_decision_is_forgotten_after_its_life() -> None:
    siblings = Siblings(lifetime=10)
    siblings.remember(1, "w0", CHAIN, now=0)
    siblings.remember(2, "w0", CHAIN[:2], now=9)
    assert siblings.match(CHAIN, now=10) == {"w0": 2}
    assert siblings.match(CHAIN, now=19) == {}
    assert len(siblings) == 0


def test_a_decision_that_came_to_nothing_is_forgotten_alone() -> None:
    siblings = Siblings()
    siblings.remember(1, "w0", CHAIN, now=0)
    siblings.remember(2, "w0", CHAIN[:2], now=0)
    siblings.forget(1)
    siblings.forget(1)
    assert siblings.match(CHAIN, now=0) == {"w0": 2}


def test_a_worker_that_is_gone_takes_with_it_what_it_was_sent() -> None:
    siblings = Siblings()
    siblings.remember(1, "w0", CHAIN, now=0)
    siblings.remember(2, "w1", CHAIN[:2], now=0)
    siblings.remember(3, "w0", CHAIN[:1], now=0)
    siblings.drop("w0")
    assert (siblings.match(CHAIN, now=0), len(siblings)) == ({"w1": 2}, 1)
    siblings.forget(1)


def test_only_the_last_decisions_are_kept() -> None:
    siblings = Siblings(max_decisions=2)
    for decision, depth in enumerate((5, 3, 1)):
        siblings.remember(decision, f"w{decision}", CHAIN[:depth], now=0)
    assert siblings.match(CHAIN, now=0) == {"w1": 3, "w2": 1}
    assert len(siblings) == 2


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 6), st.integers(0, 8)), max_size=20), st.integers(0, 8))
def test_it_knows_exactly_the_live_decisions(history: list[tuple[int, int, int]], wait: int) -> None:
    siblings, now, made = Siblings(lifetime=10), 0, []
    for number, (worker, depth, pause) in enumerate(history):
        now += pause
        siblings.remember(number, f"w{worker}", CHAIN[:depth], now)
        made.append((now, f"w{worker}", depth))
    expected: dict[str, int] = {}
    for at, name, depth in made:
        if now + wait - at < 10 and depth:
            expected[name] = max(depth, expected.get(name, 0))
    assert siblings.match(CHAIN, now + wait) == expected
