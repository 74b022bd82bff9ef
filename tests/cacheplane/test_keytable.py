"""The hash table against a dict, through growth, full buckets and erasure."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cacheplane.keytable import FILL, FIRST_BUCKETS, SEATS, Keys, KeyTable

START_SEATS = FIRST_BUCKETS * SEATS


def spread(count: int, seed: int) -> Keys:
    return np.random.default_rng(seed).integers(1, 2**63, count)


def crowded(count: int) -> Keys:
    """Keys of one and the same bucket, at any size of the table."""
    return (np.arange(1, count + 1) << 40) + 5


steps = st.lists(st.tuples(st.sampled_from(["enter", "erase"]), st.integers(0, 400)), min_size=1, max_size=25)


@given(steps, st.booleans())
def test_the_table_knows_what_a_dict_knows(history: list[tuple[str, int]], crowd: bool) -> None:
    table, model = KeyTable(20_000), dict[int, int]()
    universe = crowded(2_000) if crowd else spread(10_000, 1)
    next_row = 1
    for verb, count in history:
        if verb == "enter":
            new = np.array([key for key in universe.tolist() if key not in model][:count], np.int64)
            rows = np.arange(next_row, next_row + len(new))
            next_row += len(new)
            table.enter(new, rows)
            model.update(zip(new.tolist(), rows.tolist(), strict=True))
        else:
            gone = np.array(list(model)[::3][:count], np.int64)
            rows, seats = table.locate(gone)
            assert rows.tolist() == [model.pop(key) for key in gone.tolist()]
            table.erase(gone, seats)
        assert len(table) == len(model)
    expected = [model.get(key, 0) for key in universe.tolist()]
    assert table.find(universe).tolist() == expected
    assert table.locate(universe)[0].tolist() == expected


def test_growth_goes_on_a_little_with_each_insertion_and_loses_nothing() -> None:
    table, keys = KeyTable(100_000), spread(60_000, 2)
    sizes = []
    for first in range(0, len(keys), 100):
        table.enter(keys[first : first + 100], np.arange(first + 1, first + 101))
        sizes.append(table.buckets)
        if first % 5_000 == 0:
            assert table.find(keys[: first + 100]).tolist() == list(range(1, first + 101))
    assert max(later - sooner for sooner, later in pairwise(sizes)) <= 128
    assert sizes[-1] * SEATS * FILL >= len(keys)
    assert table.find(keys).tolist() == list(range(1, len(keys) + 1))


def test_a_table_that_is_full_to_its_capacity_still_finds_all() -> None:
    table, keys = KeyTable(5_000), spread(5_000, 3)
    table.enter(keys, np.arange(1, 5_001))
    assert table.find(keys).tolist() == list(range(1, 5_001))
    assert len(table._overflow) < 500


def test_keys_that_all_want_one_bucket_cost_a_dict_and_nothing_else() -> None:
    table, keys = KeyTable(10_000), crowded(300)
    table.enter(keys, np.arange(1, 301))
    assert len(table._overflow) == 300 - SEATS
    rows, seats = table.locate(keys)
    assert rows.tolist() == list(range(1, 301))
    table.erase(keys, seats)
    assert not table.find(keys).any()
    assert (len(table), table._overflow) == (0, {})
    assert not table._keys.any()


def test_an_erased_seat_is_used_again() -> None:
    table, keys = KeyTable(10_000), spread(START_SEATS // 2, 4)
    before = table.nbytes
    for turn in range(20):
        fresh = keys + turn
        table.enter(fresh, np.arange(1, len(fresh) + 1))
        table.erase(fresh, table.locate(fresh)[1])
    assert table.buckets == FIRST_BUCKETS
    assert table.nbytes <= before + 1_000
