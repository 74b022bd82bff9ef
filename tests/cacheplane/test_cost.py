"""The terms of the cost, each for itself; totals in tests of placement."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cacheplane.cost import (
    EVEN_SHARES,
    PATIENCE_MS,
    PRIOR_PREFILL_TPS,
    PRIOR_STEP_MS,
    RECENT_WEIGHT,
    WORK_PRICE,
    Cost,
    Costs,
    price,
)
from cacheplane.gauges import Floats, Gauge
from cacheplane.identity import BlockChain
from cacheplane.reach import Prompt, Reach

PROMPT = Prompt(BlockChain((), 16), 1000)


def priced(
    *,
    device: list[float] | None = None,
    host: list[float] | None = None,
    sent: list[float] | None = None,
    recent: list[float] | None = None,
    able: list[bool] | None = None,
    **gauges: list[float],
) -> Costs:
    """Two workers; 1,000 tokens a second unless said otherwise."""
    table = np.zeros((len(Gauge), 2))
    table[Gauge.PREFILL_TPS] = 1000
    for name, values in gauges.items():
        table[Gauge[name.upper()]] = values

    def array(values: list[float] | None) -> Floats:
        return np.array(values or [0.0, 0.0])

    reach = Reach(array(device), array(host), array(None), array(sent))
    return price(PROMPT, reach, table, array(recent), None if able is None else np.array(able), now=0.0)


def test_without_any_figures_priors_are_taken() -> None:
    costs = priced(prefill_tps=[0, 0], sequences=[2, 0])
    assert costs.of(0) == Cost(prefill_ms=1000 * 1000 / PRIOR_PREFILL_TPS, decode_ms=2 * PRIOR_STEP_MS)
    assert costs.of(1).decode_ms == 0


def test_a_rate_that_is_missing_is_that_of_the_others() -> None:
    costs = priced(prefill_tps=[500, 0])
    assert costs.of(0).prefill_ms == costs.of(1).prefill_ms == 2000


RATES = st.lists(st.floats(0, 1e12), min_size=2, max_size=2)
COUNTS = st.lists(st.integers(0, 2**31 - 1), min_size=2, max_size=2)


@given(RATES, RATES, COUNTS, COUNTS)
@example([5e-324, 1000.0], [0.0, 0.0], [0, 0], [0, 0])
def test_whatever_a_worker_may_say_no_cost_is_infinite_or_negative(
    prefill_tps: list[float], host_tps: list[float], others: list[float], sequences: list[float]
) -> None:
    costs = priced(host=[400, 0], prefill_tps=prefill_tps, host_tps=host_tps, others=others, sequences=sequences)
    assert np.isfinite(costs.total_ms).all()
    assert (costs.terms >= 0).all()


def test_a_tier_that_is_slower_than_computing_is_not_counted_on() -> None:
    costs = priced(host=[400, 400], host_tps=[2000, 900])
    assert (costs.of(0).prefill_ms, costs.of(0).load_ms) == (600, 200)
    assert (costs.of(1).prefill_ms, costs.of(1).load_ms) == (1000, 0)


def test_what_was_just_sent_counts_as_held() -> None:
    costs = priced(device=[100, 0], sent=[400, 0])
    assert costs.expected.tolist() == [400, 0]


def test_computing_again_is_priced_for_others_up_to_their_patience() -> None:
    assert priced(device=[100, 0]).of(1).others_ms == pytest.approx(100 * (WORK_PRICE - 1))
    assert priced(device=[100, 0]).of(0).others_ms == 0
    assert priced(device=[900, 0], prefill_tps=[10, 10]).of(1).others_ms == PATIENCE_MS


def test_what_a_worker_holds_that_may_not_be_chosen_is_no_measure() -> None:
    assert priced(device=[900, 0], able=[False, True]).of(1).others_ms == 0


def test_work_within_an_even_share_weighs_little_and_work_far_beyond_it_a_lot() -> None:
    even = priced(recent=[1000 * EVEN_SHARES / 2, 1000 * (1 - EVEN_SHARES / 2)])
    assert [even.of(place).others_ms for place in (0, 1)] == [0, 0]
    assert even.of(0).recent_ms == pytest.approx(RECENT_WEIGHT * 1000 * EVEN_SHARES / 2)
    crowded = priced(recent=[1000, 0])
    assert crowded.of(0).others_ms == pytest.approx((WORK_PRICE - 1) * (1000 - EVEN_SHARES * 500))


def test_totals_are_the_sums_of_the_terms() -> None:
    costs = priced(device=[160, 0], recent=[100, 3000], sequences=[1, 2], own=[50, 10])
    for place in (0, 1):
        assert costs.total_ms[place] == pytest.approx(costs.of(place).total_ms, abs=1e-3)
