"""The laws of the engine with KV as codes of 8 bits: nobody can tell from a reply where its KV came from.

Codes are steps. Where a product is added up in another order, as in another batch, a number on the edge between two
codes may get either; so the laws hold bit by bit in the deterministic mode (test_bitwise), and beside it as far as one
step goes.
"""

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worker.kv.layouts import CODED, Fp8Tiles, HalfSlots, HalfTiles, Int8Slots, Int8Tiles, LayoutClass
from tests.worker.rig import Rig, ask, greedy
from tests.worker.schedules import Cold, Plan, below, plans, play
from worker.kv import SlotLayout
from worker.kv.tiled import TILE
from worker.model import Model, fingerprint
from worker.tokenizer import Vocabulary
from worker.weights import open_weights

STEP = 0.3  # of a log probability: further than one number that is a code away moves any of the tiny model


@pytest.fixture(scope="module")
def tiled_model(tiny_path: Path) -> Model:
    return Model(open_weights(tiny_path), torch.float32, tile=TILE)


@settings(max_examples=8)
@given(
    layout=st.sampled_from([*CODED, HalfSlots]),
    schedule=st.lists(plans, min_size=1, max_size=6),
    slots=st.integers(1, 4),
    blocks=st.sampled_from([8, 40]),
    budget=st.integers(8, 40),
)
def test_beside_the_deterministic_mode_a_first_token_is_as_likely_as_alone(
    tiny_model: Model,
    tiny_vocabulary: Vocabulary,
    layout: LayoutClass,
    schedule: list[Plan],
    slots: int,
    blocks: int,
    budget: int,
) -> None:
    alone = Cold(tiny_model, tiny_vocabulary, layout)
    rig = Rig(tiny_model, tiny_vocabulary, slots=slots, blocks=blocks, budget=budget, layout=layout)
    for plan, reply in zip(schedule, play(rig, schedule), strict=True):
        first = alone.reply(plan.prompt).logprobs()[0]
        reference = dict(first.top)
        for index in range(plan.n):
            for one in reply.logprobs(index)[:1]:
                close = [abs(reference[token] - value) < STEP for token, value in one.top if token in reference]
                assert all(close)
                assert len(close) > 10
    rig.check_idle()


@pytest.mark.parametrize("layout", [Int8Tiles, Fp8Tiles, HalfTiles])
def test_offloaded_is_resident_in_every_tier(
    tiled_model: Model, tiny_vocabulary: Vocabulary, layout: LayoutClass, tmp_path: Path
) -> None:
    limits = below(layout, tiled_model, tmp_path, host=3, disk=100)
    rig = Rig(tiled_model, tiny_vocabulary, blocks=4, limits=limits, layout=layout)
    alone = Cold(tiled_model, tiny_vocabulary, layout)
    prompts = [[10 + number] * 30 for number in range(5)]
    seen = torch.zeros(2, dtype=torch.int64)
    for _ in range(3):
        for prompt in prompts:
            rig.memory.reuse.prefill_tps = 1e-9
            reply = rig.complete(ask(prompt, sampling=greedy(6)))
            expected = alone.reply(prompt)
            assert (reply.tokens(), reply.logprobs()) == (expected.tokens(), expected.logprobs())
            seen += torch.tensor([reply.start.cached.host, reply.start.cached.disk])
    assert (seen > 0).all()
    rig.memory.shut()


def test_codes_are_seen_by_the_token_that_is_computed_as_by_those_that_come_later(
    tiny_model: Model, tiny_vocabulary: Vocabulary
) -> None:
    """Not by way of exact KV first: then a hit would give another reply than a miss."""
    prompt = list(range(20, 63))
    exact = Rig(tiny_model, tiny_vocabulary, layout=SlotLayout).complete(ask(prompt)).logprobs()[0]
    coded = Cold(tiny_model, tiny_vocabulary, Int8Slots).reply(prompt).logprobs()[0]
    assert exact.logprob != coded.logprob
    assert exact.logprob == pytest.approx(coded.logprob, abs=0.5)


def test_blocks_that_are_kept_otherwise_are_no_hit(tiny_path: Path) -> None:
    weights = open_weights(tiny_path)
    prints = {fingerprint(weights, torch.float32, kept=kept) for kept in ("", "float16", "int8", "fp8")}
    assert len(prints) == 4
