"""Drawing by weight, against the times of all that race."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from worker.race import _uniform, race

keys = st.integers(0, 2**64 - 1)


@settings(max_examples=60)
@given(key=keys, seed=st.integers(0, 2**32), size=st.integers(1, 300), spread=st.sampled_from([0.0, 1.0, 20.0]))
def test_the_first_to_arrive_is_drawn(key: int, seed: int, size: int, spread: float) -> None:
    source = np.random.default_rng(seed)
    tokens = source.permutation(5 * size)[:size]
    weights = np.exp(spread * source.normal(size=size)).astype(np.float32)
    times = -np.log1p(-_uniform(tokens, key)) / weights
    assert race(weights, tokens, key) == int(times.argmin())


@given(key=keys, size=st.integers(1, 50), data=st.data())
def test_what_has_no_weight_never_arrives(key: int, size: int, data: st.DataObject) -> None:
    weights = np.zeros(size, np.float32)
    weights[data.draw(st.integers(0, size - 1))] = np.finfo(np.float32).tiny
    assert weights[race(weights, np.arange(size), key)] > 0


def test_the_same_token_is_drawn_when_weights_differ_in_their_last_digits() -> None:
    source = np.random.default_rng(1)
    tokens = np.arange(49_152)
    weights = np.exp(source.normal(size=len(tokens))).astype(np.float32)
    near = (weights * np.exp(1e-5 * source.normal(size=len(tokens)))).astype(np.float32)
    assert sum(race(weights, tokens, key) != race(near, tokens, key) for key in range(200)) <= 1


def test_who_gets_which_number_depends_on_key_and_token_alone() -> None:
    some, all_of_them = np.array([7, 3, 40_000]), _uniform(np.arange(50_000), 11)
    assert _uniform(some, 11).tolist() == all_of_them[some].tolist()
    assert 0 < all_of_them.min() < 1e-4
    assert 1 - 1e-4 < all_of_them.max() < 1
    assert abs(float(all_of_them.mean()) - 0.5) < 0.01
    assert not np.isin(_uniform(np.arange(50_000), 12), all_of_them).any()
