"""The hash table against a dict, through growth, full buckets and erasure."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cacheplane.keytable import FILL, FIRST_BUCKETS, OUTSIDE, SEATS, Keys, KeyTable, Rows, Seats

START_SEATS = FIRST_BUCKETS * SEATS


def spread(count: int, seed: int) -> Keys:
    return np.random.default_rng(seed).integers(1, 2**63, count)


def crowded(count: int) -> Keys:
    """Keys of one and the same bucket, at any size of the table."""
    return (np.arange(1, count + 1) << 40) + 5


def enter(table: KeyTable, keys: Keys, rows: Rows) -> Seats:
    seats = table.enter(keys, rows)
    assert seats is not None
    return seats


steps = st.lists(st.tuples(st.sampled_from(["enter", "erase"]), st.integers(0, 400)), min_size=1, max_size=25)


@given(steps, st.booleans())
def test_the_table_knows_what_a_dict_knows(history: list[tuple[str, int]], crowd: bool) -> None:
    table, model, seat = KeyTable(20_000), dict[int, int](), dict[int, int]()
    universe = crowded(2_000) if crowd else spread(10_000, 1)
    next_row = 1
    for verb, count in history:
        if verb == "enter":
            new = np.array([key for key in universe.tolist() if key not in model][:count], np.int64)
            rows = np.arange(next_row, next_row + len(new))
            next_row += len(new)
            seat.update(zip(new.tolist(), enter(table, new, rows).tolist(), strict=True))
            model.update(zip(new.tolist(), rows.tolist(), strict=True))
        else:
            gone = np.array(list(model)[::3][:count], np.int64)
            assert table.find(gone).tolist() == [model.pop(key) for key in gone.tolist()]
            table.erase(gone, np.array([seat.pop(key) for key in gone.tolist()], np.uint8))
        assert len(table) == len(model)
    expected = [model.get(key, 0) for key in universe.tolist()]
    assert table.find(universe).tolist() == expected
    assert [table.row(key) for key in universe.tolist()] == expected


def test_growth_goes_on_a_little_with_each_insertion_and_loses_nothing() -> None:
    table, keys = KeyTable(100_000), spread(60_000, 2)
    sizes, seats = [], []
    for first in range(0, len(keys), 100):
        seats.append(enter(table, keys[first : first + 100], np.arange(first + 1, first + 101)))
        sizes.append(table.buckets)
        if first % 5_000 == 0:
            assert table.find(keys[: first + 100]).tolist() == list(range(1, first + 101))
    assert max(later - sooner for sooner, later in pairwise(sizes)) <= 128
    assert sizes[-1] * SEATS * FILL >= len(keys)
    assert table.find(keys).tolist() == list(range(1, len(keys) + 1))
    table.erase(keys, np.concatenate(seats).astype(np.uint8))
    assert not table._keys.any()  # a bucket that was split kept nothing of what it gave away


def test_a_table_that_is_full_to_its_capacity_still_finds_all() -> None:
    table, keys = KeyTable(5_000), spread(5_000, 3)
    table.enter(keys, np.arange(1, 5_001))
    assert table.find(keys).tolist() == list(range(1, 5_001))
    assert len(table._overflow) < 500


def test_keys_that_all_want_one_bucket_cost_a_dict_and_nothing_else() -> None:
    table, keys = KeyTable(10_000), crowded(300)
    seats = enter(table, keys, np.arange(1, 301))
    assert len(table._overflow) == np.count_nonzero(seats == OUTSIDE) == 300 - SEATS
    assert table.find(keys).tolist() == [table.row(key) for key in keys.tolist()] == list(range(1, 301))
    table.erase(keys, seats.astype(np.uint8))
    assert not table.find(keys).any()
    assert (len(table), table._overflow) == (0, {})
    assert not table._keys.any()


@given(st.booleans(), st.integers(0, 59), st.integers(0, 59), st.booleans())
def test_if_one_key_is_here_already_or_comes_twice_none_is_entered(
    crowd: bool, one: int, other: int, here: bool
) -> None:
    table, keys = KeyTable(10_000), crowded(120) if crowd else spread(120, 5)
    enter(table, keys[:60], np.arange(1, 61))
    late = keys[60:].copy()
    late[one] = keys[other] if here else late[other]
    assert (table.enter(late, np.arange(61, 121)) is None) == (here or one != other)
    assert len(table) == (60 if here or one != other else 120)
    assert table.find(keys).tolist() == list(range(1, len(table) + 1)) + [0] * (120 - len(table))


def test_an_erased_seat_is_used_again() -> None:
    table, keys = KeyTable(10_000), spread(START_SEATS // 2, 4)
    before = table.nbytes
    for turn in range(20):
        fresh = keys + turn
        table.erase(fresh, enter(table, fresh, np.arange(1, len(fresh) + 1)).astype(np.uint8))
    assert table.buckets == FIRST_BUCKETS
    assert table.nbytes <= before + 1_000
