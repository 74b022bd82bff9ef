"""Workers of which a reply has the same bits whatever happens around it: hit or miss, any chunks, any batch, drafts,
preemption, tiers. In the deterministic mode whatever KV is kept as; in the usual one where products go by codes and
slots are the affair of kernels in C, for these add up each row in one order."""

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import Storage
from tests.worker.kv.layouts import Fp8Tiles, HalfSlots, HalfTiles, Int8Tiles, LayoutClass
from tests.worker.rig import Rig
from tests.worker.schedules import Cold, Plan, apart, below, plans, play
from worker.kv import SlotLayout
from worker.kv.tiled import TILE, TiledSlotLayout
from worker.model import Model
from worker.ngrams import NgramIndex
from worker.speculation import Speculator
from worker.tokenizer import Vocabulary
from worker.weights import Weights, open_weights


@dataclass(frozen=True)
class Kind:
    layout: LayoutClass
    dtype: torch.dtype = torch.float32
    storage: Storage | None = None
    tile: int | None = None

    def model(self, weights: Weights) -> Model:
        try:
            return Model(weights, self.dtype, storage=self.storage, tile=self.tile)
        except RuntimeError:
            # A processor without native bfloat16 packs none; there float32 is all that the worker offers.
            return Model(weights, torch.float32, storage=self.storage, tile=self.tile)


KINDS = {
    "tiles-float32": Kind(TiledSlotLayout, tile=TILE),
    "tiles-bfloat16": Kind(TiledSlotLayout, torch.bfloat16, tile=TILE),
    "tiles-int8-kv": Kind(Int8Tiles, tile=TILE),
    "tiles-fp8-kv": Kind(Fp8Tiles, tile=TILE),
    "tiles-float16-kv": Kind(HalfTiles, tile=TILE),
    "codes-int4-float16-kv": Kind(HalfSlots, storage="int4"),
    "codes-int8": Kind(SlotLayout, storage="int8"),
    "codes-int4": Kind(SlotLayout, storage="int4"),
}


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


@pytest.fixture(scope="module")
def model(kind: Kind, tiny_path: Path) -> Model:
    return kind.model(open_weights(tiny_path))


@pytest.fixture(scope="module")
def alone(kind: Kind, model: Model, tiny_vocabulary: Vocabulary) -> Cold:
    return Cold(model, tiny_vocabulary, kind.layout)


@settings(max_examples=10)
@given(
    schedule=st.lists(plans, min_size=1, max_size=6),
    slots=st.integers(1, 4),
    between=st.sampled_from([0, 8]),
    blocks=st.sampled_from([3, 8, 40]),
    host=st.sampled_from([0, 4]),
    disk=st.sampled_from([0, 40]),
    budget=st.integers(8, 40),
    most=st.sampled_from([0, 4]),
)
def test_a_reply_has_the_same_bits_whatever_happens_around_it(
    kind: Kind,
    model: Model,
    alone: Cold,
    tiny_vocabulary: Vocabulary,
    schedule: list[Plan],
    slots: int,
    between: int,
    blocks: int,
    host: int,
    disk: int,
    budget: int,
    most: int,
) -> None:
    schedule = apart(schedule, between)
    with TemporaryDirectory() as folder:
        rig = Rig(
            model,
            tiny_vocabulary,
            slots=slots,
            blocks=blocks,
            budget=budget,
            limits=below(kind.layout, model, Path(folder), host=host, disk=disk),
            speculator=Speculator(most, adaptive=False, index=lambda: NgramIndex((1,))),
            layout=kind.layout,
        )
        for plan, reply in zip(schedule, play(rig, schedule), strict=True):
            expected = alone.reply(plan.prompt)
            for index in range(plan.n):
                count = len(reply.tokens(index))
                assert reply.tokens(index) == expected.tokens()[:count]
                assert reply.logprobs(index) == expected.logprobs()[:count]  # not nearly: equal
        rig.check_idle()
        rig.memory.shut()
