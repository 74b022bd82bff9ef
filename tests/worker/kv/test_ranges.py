"""What a lease asks for: each block once, on the terms of the first range that names it."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.kv.ranges import LeaseRange, apart

BLOCKS = st.lists(st.integers(0, 9), max_size=8)
RANGES = st.lists(st.tuples(BLOCKS, st.integers(0, 100), st.integers(0, 9)), max_size=4)


@given(RANGES)
def test_a_block_belongs_to_the_first_range_that_names_it(asked: list[tuple[list[int], int, int]]) -> None:
    parts = apart(LeaseRange(*one) for one in asked)
    terms = {block: (part.priority, part.ttl) for part in parts for block in part.blocks}
    first = {block: (priority, ttl) for blocks, priority, ttl in reversed(asked) for block in blocks}
    assert terms == first
    assert sum(len(part.blocks) for part in parts) == len(terms)
    assert all(part.blocks for part in parts)


@pytest.mark.parametrize(("priority", "ttl"), [(-1, 1), (101, 1), (50, -1), (50, math.nan)])
def test_terms_out_of_range_are_refused(priority: int, ttl: float) -> None:
    with pytest.raises(ValueError, match="lease"):
        LeaseRange("a", priority, ttl)
