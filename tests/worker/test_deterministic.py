"""The deterministic mode: the same bits alone and in any batch, hit or miss, whole or in chunks, preempted or not."""

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import Storage
from tests.worker.rig import Reply, Rig, ask, greedy
from tests.worker.schedules import Plan, plans, play
from worker.kv.tiled import TILE, TiledSlotLayout
from worker.model import Model, fingerprint
from worker.ngrams import NgramIndex
from worker.speculation import Speculator
from worker.tokenizer import Vocabulary
from worker.weights import open_weights


@pytest.fixture(scope="module", params=[torch.float32, torch.bfloat16], ids=str)
def tiled_model(tiny_path: Path, request: pytest.FixtureRequest) -> Model:
    try:
        return Model(open_weights(tiny_path), request.param, tile=TILE)
    except RuntimeError:
        # A processor without native bfloat16 packs none; there float32 is all that the worker offers.
        return Model(open_weights(tiny_path), torch.float32, tile=TILE)


@pytest.fixture(scope="module")
def codes_models(tiny_path: Path) -> dict[Storage, Model]:
    storages: tuple[Storage, ...] = ("int8", "int4")
    return {storage: Model(open_weights(tiny_path), torch.float32, storage=storage) for storage in storages}


_alone: dict[tuple[torch.dtype, tuple[int, ...]], Reply] = {}


def alone(model: Model, vocabulary: Vocabulary, prompt: list[int]) -> Reply:
    """The prompt by itself, whole in one step, in an engine that has seen nothing."""
    key = model.dtype, tuple(prompt)
    if key not in _alone:
        rig = Rig(model, vocabulary, slots=1, budget=256, layout=TiledSlotLayout)
        _alone[key] = rig.complete(ask(prompt, sampling=greedy(6)))
    return _alone[key]


@settings(max_examples=10)
@given(
    schedule=st.lists(plans, min_size=1, max_size=6),
    slots=st.integers(1, 4),
    blocks=st.sampled_from([3, 8, 40]),
    budget=st.integers(8, 40),
    most=st.sampled_from([0, 4]),
)
def test_a_reply_has_the_same_bits_whatever_happens_around_it(
    tiled_model: Model,
    tiny_vocabulary: Vocabulary,
    schedule: list[Plan],
    slots: int,
    blocks: int,
    budget: int,
    most: int,
) -> None:
    speculator = Speculator(most, adaptive=False, index=lambda: NgramIndex((1,)))
    rig = Rig(
        tiled_model,
        tiny_vocabulary,
        slots=slots,
        blocks=blocks,
        budget=budget,
        speculator=speculator,
        layout=TiledSlotLayout,
    )
    for plan, reply in zip(schedule, play(rig, schedule), strict=True):
        expected = alone(tiled_model, tiny_vocabulary, plan.prompt)
        for index in range(plan.n):
            count = len(reply.tokens(index))
            assert reply.tokens(index) == expected.tokens()[:count]
            assert reply.logprobs(index) == expected.logprobs()[:count]  # not nearly: equal
    rig.check_idle()


@settings(max_examples=10)
@given(
    schedule=st.lists(plans, min_size=1, max_size=6),
    slots=st.integers(1, 4),
    blocks=st.sampled_from([3, 8, 40]),
    budget=st.integers(8, 40),
    most=st.sampled_from([0, 4]),
    storage=st.sampled_from(["int8", "int4"]),
)
def test_so_has_one_of_the_usual_mode_where_codes_and_slots_are_the_affair_of_kernels_in_c(
    codes_models: dict[Storage, Model],
    tiny_vocabulary: Vocabulary,
    schedule: list[Plan],
    slots: int,
    blocks: int,
    budget: int,
    most: int,
    storage: Storage,
) -> None:
    """Hit, miss, any chunks, any batch, drafts, preemption: a row is added up in one order, its attention too."""
    model = codes_models[storage]
    speculator = Speculator(most, adaptive=False, index=lambda: NgramIndex((1,)))
    rig = Rig(model, tiny_vocabulary, slots=slots, blocks=blocks, budget=budget, speculator=speculator)
    for plan, reply in zip(schedule, play(rig, schedule), strict=True):
        expected = Rig(model, tiny_vocabulary, slots=1, budget=256).complete(ask(plan.prompt, sampling=greedy(6)))
        for index in range(plan.n):
            count = len(reply.tokens(index))
            assert reply.tokens(index) == expected.tokens()[:count]
            assert reply.logprobs(index) == expected.logprobs()[:count]
    rig.check_idle()


def test_its_logits_are_those_of_the_usual_mode(
    tiny_model: Model, tiled_model: Model, tiny_vocabulary: Vocabulary
) -> None:
    prompt = list(range(20, 63))
    usual = Rig(tiny_model, tiny_vocabulary).complete(ask(prompt))
    tolerance = 1e-5 if tiled_model.dtype == torch.float32 else 0.3
    for one, other in zip(alone(tiled_model, tiny_vocabulary, prompt).logprobs(), usual.logprobs(), strict=False):
        assert one.logprob == pytest.approx(other.logprob, abs=tolerance)


def test_its_blocks_are_no_hit_for_the_usual_mode(tiny_path: Path) -> None:
    weights = open_weights(tiny_path)
    assert fingerprint(weights, torch.float32, tile=TILE) != fingerprint(weights, torch.float32)
