"""Sampling against exact distributions and formulas written out."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from worker.sampler import Logits, LogitsError, Sampler, _likeliest
from worker.wire import Sampling

DRAWS = 1500
logits_of = arrays(
    np.float32, st.integers(2, 40), elements=st.integers(-512, 512).map(lambda number: number / 64), unique=True
)


def sampler(params: Sampling, *, seed: int = 0, index: int = 0, prompt: set[int] | None = None) -> Sampler:
    return Sampler(params, seed, index, prompt or set())


class Only:
    """Those of a mask may come; counts how often all of it was asked for."""

    def __init__(self, mask: NDArray[np.bool_]) -> None:
        self._mask = mask
        self.asked = 0

    def permits(self, token: int) -> bool:
        return bool(self._mask[token])

    def mask(self) -> NDArray[np.bool_]:
        self.asked += 1
        return self._mask


def pick(one: Sampler, logits: Logits, position: int = 0, allowed: Only | None = None) -> int:
    choice = one.choose(logits, position, allowed)
    assert choice is not None
    return choice.token


def exact(logits: Logits, params: Sampling) -> NDArray[np.float64]:
    """The distribution: softmax at the temperature, cut to top-k, to the nucleus of that and to min-p, scaled to 1."""
    chances = np.exp((logits.astype(np.float64) - logits.max()) / params.temperature)
    order = np.argsort(-chances)[: params.top_k or None]
    left = chances[order] / chances[order].sum()
    before = np.concatenate(([0.0], left.cumsum()[:-1]))
    kept = order[before < params.top_p]
    kept = kept[chances[kept] >= params.min_p * chances.max()]
    distribution: NDArray[np.float64] = np.zeros_like(chances)
    distribution[kept] = chances[kept] / chances[kept].sum()
    return distribution


@pytest.mark.parametrize(
    "params",
    [
        Sampling(max_tokens=1),
        Sampling(max_tokens=1, temperature=0.4),
        Sampling(max_tokens=1, temperature=2.0),
        Sampling(max_tokens=1, top_k=3),
        Sampling(max_tokens=1, top_p=0.7),
        Sampling(max_tokens=1, min_p=0.2),
        Sampling(max_tokens=1, temperature=1.5, top_k=6, top_p=0.9, min_p=0.05),
    ],
    ids=repr,
)
@pytest.mark.parametrize("forbidden", [(), (0, 3, 4, 9)])
def test_draws_follow_the_exact_distribution(params: Sampling, forbidden: tuple[int, ...]) -> None:
    """Pearson's statistic, under a bound that chance passes once in 30,000 times (Wilson and Hilferty, 1931)."""
    logits = np.random.default_rng(7).normal(size=12).astype(np.float32)
    allowed = np.ones(len(logits), dtype=np.bool_)
    allowed[list(forbidden)] = False
    expected = exact(np.where(allowed, logits, -np.inf), params) * DRAWS
    one = sampler(params, seed=42)
    drawn = Counter(pick(one, logits, position, Only(allowed)) for position in range(DRAWS))
    assert all(expected[token] for token in drawn)
    likely = np.flatnonzero(expected)
    statistic = sum((drawn[int(token)] - expected[token]) ** 2 / expected[token] for token in likely)
    freedom = len(likely) - 1
    assert statistic < freedom * (1 - 2 / (9 * freedom) + 4 * math.sqrt(2 / (9 * freedom))) ** 3


def test_many_that_are_unlikely_each_are_drawn_as_often_as_they_should_be_together() -> None:
    logits = np.full(20_000, math.log(1e-4), dtype=np.float32)
    logits[[7, 12_345]] = 0.0
    one = sampler(Sampling(max_tokens=1), seed=3)
    drawn = [pick(one, logits, position) for position in range(DRAWS)]
    near = sum(token in (7, 12_345) for token in drawn) / DRAWS
    assert abs(near - 0.5) < 4 * math.sqrt(0.25 / DRAWS)
    far = [token for token in drawn if token not in (7, 12_345)]
    assert len(set(far)) > 0.95 * len(far)
    assert abs(np.mean(far) / 10_000 - 1) < 4 / math.sqrt(3 * len(far))


@pytest.mark.parametrize(("top_k", "drawn"), [(0, {0, 1}), (3, {0, 1}), (2, {0})])
def test_top_p_is_a_share_of_what_top_k_leaves(top_k: int, drawn: set[int]) -> None:
    """As in transformers, vLLM and llama.cpp: of 0.4 and 0.3 alone the first has more than half."""
    logits = np.log(np.array([0.4, 0.3, 0.2, 0.1], dtype=np.float32))
    one = sampler(Sampling(max_tokens=1, top_k=top_k, top_p=0.5), seed=1)
    assert {pick(one, logits, position) for position in range(100)} == drawn


@settings(max_examples=60)
@given(
    logits=logits_of,
    top_k=st.integers(0, 50),
    top_p=st.floats(0.01, 1.0),
    min_p=st.floats(0, 1),
    temperature=st.floats(0.05, 2),
    seed=st.integers(-(2**63), 2**63 - 1),
)
def test_no_token_is_drawn_that_the_filters_cut(
    logits: Logits, top_k: int, top_p: float, min_p: float, temperature: float, seed: int
) -> None:
    params = Sampling(max_tokens=1, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    distribution = exact(logits, params)
    one = sampler(params, seed=seed)
    assert all(distribution[pick(one, logits, position)] > 0 for position in range(5))


@given(
    values=arrays(np.float64, st.integers(1, 700), elements=st.floats(0, 1, allow_subnormal=False)),
    count=st.integers(1, 700),
    mass=st.one_of(st.floats(0.001, 400), st.just(math.inf)),
)
def test_the_likeliest_are_those_that_sorting_finds(values: NDArray[np.float64], count: int, mass: float) -> None:
    ordered = np.sort(values)[::-1][:count]
    reached = ordered.cumsum() >= mass
    expected = ordered[: int(reached.argmax()) + 1] if reached.any() else ordered
    found = _likeliest(values, count, mass)
    assert len(set(found.tolist())) == len(found)
    assert values[found].tolist() == expected.tolist()


@given(logits_of)
def test_temperature_zero_takes_the_best(logits: Logits) -> None:
    assert pick(sampler(Sampling(max_tokens=1, temperature=0)), logits) == int(np.argmax(logits))


@pytest.mark.parametrize("temperature", [1e-6, 1e-300, 5e-324])
def test_a_temperature_next_to_zero_takes_the_best_too(temperature: float) -> None:
    logits = np.array([1.0, 30.0, 29.0, -np.inf], dtype=np.float32)
    assert pick(sampler(Sampling(max_tokens=1, temperature=temperature)), logits) == 1


@given(logits=logits_of, data=st.data(), temperature=st.sampled_from([0.0, 1.0]), top_k=st.integers(0, 4))
def test_what_is_not_allowed_is_never_chosen(
    logits: Logits, data: st.DataObject, temperature: float, top_k: int
) -> None:
    allowed = data.draw(arrays(np.bool_, len(logits)))
    one = sampler(Sampling(max_tokens=1, temperature=temperature, top_k=top_k))
    choice = one.choose(logits, 0, Only(allowed))
    if choice is None:
        assert not allowed.any()
    else:
        assert allowed[choice.token]
        assert temperature > 0 or logits[choice.token] == logits[allowed].max()


def test_who_would_be_chosen_anyhow_needs_no_mask() -> None:
    logits = np.array([0.0, 60.0, 30.0], dtype=np.float32)
    for temperature in (0.0, 0.5):
        best, second = Only(np.array([False, True, True])), Only(np.array([True, False, True]))
        one = sampler(Sampling(max_tokens=1, temperature=temperature))
        assert (pick(one, logits, 0, best), best.asked) == (1, 0)
        assert (pick(one, logits, 0, second), second.asked) == (2, 1)


def test_a_seed_gives_the_same_tokens_again_whatever_happens_between() -> None:
    logits = np.zeros(1000, dtype=np.float32)
    params = Sampling(max_tokens=1)
    first = [pick(sampler(params, seed=5), logits, position) for position in range(20)]
    again = sampler(params, seed=5)
    assert [pick(again, logits, position) for position in reversed(range(20))] == first[::-1]


def test_seeds_choices_and_positions_are_independent() -> None:
    logits = np.zeros(1 << 16, dtype=np.float32)
    params = Sampling(max_tokens=1)
    drawn = [
        pick(sampler(params, seed=seed, index=index), logits, position)
        for seed in (0, 1, -1)
        for index in range(3)
        for position in range(3)
    ]
    assert len(set(drawn)) == len(drawn)


@given(
    logits=logits_of,
    data=st.data(),
    frequency=st.floats(-2, 2),
    presence=st.floats(-2, 2),
    repetition=st.floats(0.5, 2),
)
def test_penalties_and_bias_follow_their_formulas(
    logits: Logits, data: st.DataObject, frequency: float, presence: float, repetition: float
) -> None:
    ids = st.integers(0, len(logits) - 1)
    prompt, generated = data.draw(st.sets(ids)), data.draw(st.lists(ids, max_size=10))
    bias = data.draw(st.dictionaries(ids, st.floats(-100, 100), max_size=3))
    params = Sampling(
        max_tokens=1,
        frequency_penalty=frequency,
        presence_penalty=presence,
        repetition_penalty=repetition,
        logit_bias={str(token): value for token, value in bias.items()},
    )
    one = sampler(params, prompt=prompt)
    for token in generated:
        one.accept(token)
    for token, score in enumerate(one._penalised(logits)):
        expected = float(logits[token])
        if token in prompt or token in generated:
            expected = expected / repetition if expected > 0 else expected * repetition
        expected -= generated.count(token) * frequency + (token in generated) * presence
        assert score == pytest.approx(expected + bias.get(token, 0), abs=1e-3)


def test_of_many_tokens_the_largest_are_those_that_top_k_and_top_p_leave() -> None:
    logits = np.random.default_rng(3).permutation(np.linspace(-9, 9, 5000)).astype(np.float32)
    for top_k, top_p in ((4000, 1.0), (4000, 0.5), (300, 0.99), (1, 0.1)):
        params = Sampling(max_tokens=1, temperature=2.0, top_k=top_k, top_p=top_p)
        kept = sampler(params)._candidates(np.exp((logits - logits.max()) / np.float32(2)))
        assert sorted(kept.tolist()) == np.flatnonzero(exact(logits, params)).tolist()


def test_a_bias_can_force_and_forbid() -> None:
    logits = np.array([1.0, 2.0, 3.0], dtype=np.float32)
    assert pick(sampler(Sampling(max_tokens=1, temperature=0, logit_bias={"0": 100})), logits) == 0
    assert pick(sampler(Sampling(max_tokens=1, temperature=0, logit_bias={"2": -100})), logits) == 1


@given(logits_of)
def test_logprobs_are_those_of_the_model_and_sum_to_one(logits: Logits) -> None:
    """Before temperature, penalties, bias and grammar."""
    params = Sampling(
        max_tokens=1, temperature=0.3, logprobs=20, presence_penalty=2, logit_bias={"0": 50}, top_k=1, min_p=0.5
    )
    one = sampler(params)
    one.accept(1)
    logits = logits[:20]
    choice = one.choose(logits, 0, Only(np.arange(len(logits)) == 1))
    assert choice is not None
    assert choice.logprob is not None
    top = dict(choice.logprob.top)
    assert len(top) == len(logits)
    assert sum(map(math.exp, top.values())) == pytest.approx(1)
    assert choice.logprob.logprob == top[1]
    wide = logits.astype(np.float64)
    assert top[1] == pytest.approx(wide[1] - np.logaddexp.reduce(wide))
    assert list(top.values()) == sorted(top.values(), reverse=True)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize(
    "params", [Sampling(max_tokens=1, temperature=0), Sampling(max_tokens=1), Sampling(max_tokens=1, top_k=2)], ids=repr
)
def test_by_what_is_no_number_nothing_is_chosen(value: float, params: Sampling) -> None:
    logits = np.array([1.0, value, 2.0], dtype=np.float32)
    for allowed in (None, Only(np.array([False, True, True]))):
        with pytest.raises(LogitsError):
            sampler(params).choose(logits, 0, allowed)


def test_logprobs_of_zero_alternatives_name_the_chosen_token_alone() -> None:
    choice = sampler(Sampling(max_tokens=1, temperature=0, logprobs=0)).choose(np.zeros(4, dtype=np.float32), 0, None)
    assert choice is not None
    assert choice.logprob is not None
    assert choice.logprob.top == []
    assert choice.logprob.logprob == pytest.approx(-math.log(4))


def test_without_logprobs_none_are_made_and_the_logits_stay_as_they_are() -> None:
    logits = np.array([1.0, 2.0], dtype=np.float32)
    one = sampler(Sampling(max_tokens=1, temperature=0, presence_penalty=2))
    one.accept(1)
    choice = one.choose(logits, 0, None)
    assert choice is not None
    assert (choice.token, choice.logprob, logits.tolist()) == (0, None, [1.0, 2.0])
