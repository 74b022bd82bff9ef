"""Columns of figures, and the queue that they add up to."""

from hypothesis import given
from hypothesis import strategies as st

from cacheplane.gauges import Gauge, Gauges, queued_tokens


def test_rows_are_zero_when_taken_and_stay_where_they_are_while_the_table_grows() -> None:
    gauges = Gauges()
    rows = [gauges.take() for _ in range(100)]
    assert len(set(rows)) == 100
    gauges.table[:, rows] = [list(range(100))] * len(Gauge)
    more = gauges.take()
    assert gauges.table[Gauge.OWN, rows].tolist() == list(range(100))
    gauges.give_back(rows[7])
    assert gauges.table[:, [rows[7], more]].sum() == 0


@given(st.integers(0, 1000), st.integers(0, 1000), st.integers(0, 1000), st.floats(0, 500), st.floats(0, 10))
def test_a_queue_is_never_below_our_prompts_behind_the_oldest_nor_above_all_that_was_put_there(
    oldest: int, behind: int, others: int, tps: float, seconds: float
) -> None:
    gauges = Gauges()
    row = gauges.take()
    gauges.table[Gauge.OWN, row], gauges.table[Gauge.OLDEST, row] = oldest + behind, oldest
    gauges.table[Gauge.OTHERS, row], gauges.table[Gauge.PREFILL_TPS, row] = others, tps
    queued = float(queued_tokens(gauges.table[:, [row]], seconds)[0])
    assert behind - 1e-9 <= queued <= oldest + behind + others
    assert queued_tokens(gauges.table[:, [row]], 0.0)[0] == oldest + behind + others
