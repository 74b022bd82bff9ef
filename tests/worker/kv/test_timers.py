"""Timers ring in order, and only for covers that are due when they ring."""

import math

from hypothesis import given
from hypothesis import strategies as st

from worker.kv.cover import Cover
from worker.kv.timers import Timers


def test_only_what_is_due_still_rings_and_in_order() -> None:
    timers: Timers[str] = Timers()
    covers: list[Cover[str]] = [Cover(0, 35) for _ in range(4)]
    for cover, due in zip(covers, (3.0, 1.0, 2.0, 1.0), strict=True):
        cover.due = due
        timers.set(cover)
    covers[3].due = math.inf
    assert list(timers.rung(2.0)) == [covers[1], covers[2]]
    assert timers.holds(covers[0])
    assert list(timers.rung(2.5)) == []
    assert list(timers.rung(3.0)) == [covers[0]]
    assert len(timers) == 0


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 50)), max_size=400))
def test_what_was_set_anew_is_forgotten_in_time(turns: list[tuple[int, int]]) -> None:
    timers: Timers[str] = Timers()
    covers: list[Cover[str]] = [Cover(0, 35) for _ in range(6)]
    for which, due in turns:
        covers[which].due = due
        timers.set(covers[which])
    waiting = {which for which, _ in turns}
    assert all(timers.holds(covers[which]) for which in waiting)
    assert len(timers) <= 2 * len(waiting) + 65
    rung = list(timers.rung(50))
    assert {id(cover) for cover in rung} == {id(covers[which]) for which in waiting}
    assert [cover.due for cover in rung] == sorted(cover.due for cover in rung)
