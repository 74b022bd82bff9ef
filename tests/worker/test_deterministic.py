"""The deterministic mode beside the usual one; that it keeps a reply's bits is a law of test_bitwise."""

from pathlib import Path

import pytest
import torch

from tests.worker.rig import Rig, ask
from tests.worker.schedules import Cold
from worker.kv.tiled import TILE, TiledSlotLayout
from worker.model import Model, fingerprint
from worker.tokenizer import Vocabulary
from worker.weights import open_weights


@pytest.fixture(scope="module", params=[torch.float32, torch.bfloat16], ids=str)
def tiled_model(tiny_path: Path, request: pytest.FixtureRequest) -> Model:
    try:
        return Model(open_weights(tiny_path), request.param, tile=TILE)
    except RuntimeError:
        # A processor without native bfloat16 packs none; there float32 is all that the worker offers.
        return Model(open_weights(tiny_path), torch.float32, tile=TILE)


def test_its_logits_are_those_of_the_usual_mode(
    tiny_model: Model, tiled_model: Model, tiny_vocabulary: Vocabulary
) -> None:
    prompt = list(range(20, 63))
    usual = Rig(tiny_model, tiny_vocabulary).complete(ask(prompt))
    tiled = Cold(tiled_model, tiny_vocabulary, TiledSlotLayout).reply(prompt)
    tolerance = 1e-5 if tiled_model.dtype == torch.float32 else 0.3
    for one, other in zip(tiled.logprobs(), usual.logprobs(), strict=False):
        assert one.logprob == pytest.approx(other.logprob, abs=tolerance)


def test_its_blocks_are_no_hit_for_the_usual_mode(tiny_path: Path) -> None:
    weights = open_weights(tiny_path)
    assert fingerprint(weights, torch.float32, tile=TILE) != fingerprint(weights, torch.float32)
