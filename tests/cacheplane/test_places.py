"""Rows of blocks: never given twice, those of a chain together, and never more room than stated."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cacheplane.places import DENSE, GAP, Places

AT_ONCE = 50


class Column:
    """A column as the block table keeps it."""

    def __init__(self, blocks: int) -> None:
        self.used = np.zeros(Places.room(blocks, AT_ONCE), np.uint32)
        self.places = Places(self.used)

    def take(self, count: int, behind: int = 0) -> list[int]:
        rows = self.places.take(count, behind)
        assert not self.used[rows].any()
        self.used[rows] = 1
        return [int(row) for row in rows]

    def free(self, rows: list[int]) -> None:
        self.used[rows] = 0
        self.places.give_back(len(rows))


@given(st.lists(st.tuples(st.integers(1, AT_ONCE), st.booleans(), st.integers(0, 10_000)), max_size=60))
def test_rows_are_given_once_and_stay_within_the_room(history: list[tuple[int, bool, int]]) -> None:
    column, runs = Column(300), list[list[int]]()
    for count, behind, pick in history:
        while sum(map(len, runs)) + count > 300:
            column.free(runs.pop(pick % len(runs)))
        last = runs[pick % len(runs)][-1] if behind and runs else 0
        run = column.take(count, last)
        assert len(run) == count
        turn = run.index(min(run))  # where a sweep went on from the bottom
        assert run[turn:] + run[:turn] == sorted(run)
        runs.append(run)
    assert column.places.taken == sum(map(len, runs)) == np.count_nonzero(column.used)
    assert column.places.top <= len(column.used)


def test_a_chain_that_grows_block_by_block_stays_in_one_stretch() -> None:
    column = Column(10_000)
    first, other = column.take(40), column.take(40)
    for _ in range(GAP):
        first += column.take(1, first[-1])
        other += column.take(1, other[-1])
    assert first == list(range(first[0], first[0] + 40 + GAP))
    assert other == list(range(other[0], other[0] + 40 + GAP))


def test_rows_that_were_freed_are_given_again_before_the_column_grows() -> None:
    column = Column(10_000)
    runs = [column.take(50) for _ in range(100)]
    top = column.places.top
    for run in runs[::2]:
        column.free(run)
    for _ in range(30):
        column.take(50)
    assert column.places.top == top
    assert column.places.taken < DENSE * top
