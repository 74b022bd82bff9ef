"""Every architecture against transformers, from a folder and from a GGUF file; and the laws where windows slide."""

from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.worker.peers import CONTEXT, KINDS, VOCABULARY, WINDOW, Peer
from worker.kv import SlotLayout
from worker.kv.radix import NOWHERE
from worker.model import Model
from worker.rows import Row
from worker.weights import open_weights

TOLERANCE = 1e-4  # of logits of up to 10
BLOCK = 8
LENGTH = 150  # beyond the original context of stretched models, and many windows long
SLIDING = [kind for kind, (_, own) in KINDS.items() if own.get("sliding_window")]
tokens_of = st.lists(st.integers(0, VOCABULARY - 1), min_size=2 * WINDOW, max_size=90)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("peers")


def slots_of(model: Model) -> SlotLayout:
    return SlotLayout(model.kv_shape, slots=3, context=CONTEXT, blocks=16, block_size=BLOCK)


def whole(model: Model, tokens: list[int]) -> Tensor:
    """Logits after every token, computed in one piece in a fresh slot."""
    return model.forward(tokens, [Row(0, 0, len(tokens), wanted=len(tokens))], slots_of(model))


@cache
def loaded(kind: str, folder: Path) -> Model:
    return Model(open_weights(Peer(kind).write_folder(folder / kind)), torch.float32)


@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_those_of_the_peer_from_a_folder_and_from_gguf(kind: str, folder: Path) -> None:
    peer = Peer(kind)
    tokens = np.random.default_rng(1).integers(0, VOCABULARY, LENGTH).tolist()
    theirs = peer.logits(tokens)
    assert theirs.std() > 0.5
    ours = whole(loaded(kind, folder), tokens)
    torch.testing.assert_close(ours, theirs, atol=TOLERANCE, rtol=0)
    if kind.startswith("qwen") and kind in SLIDING:
        return  # a GGUF file has no place for windows that differ between layers
    weights = open_weights(peer.write_gguf(folder / f"{kind}.gguf"))
    torch.testing.assert_close(whole(Model(weights, torch.float32), tokens), theirs, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("kind", SLIDING)
def test_what_has_left_the_window_of_every_layer_moves_nothing(kind: str, folder: Path) -> None:
    model, tokens = loaded(kind, folder), list(range(100, 190))
    other = [7, *tokens[1:]]
    moved = (whole(model, tokens) - whole(model, other)).abs().amax(dim=-1) > 1e-6
    assert moved[:WINDOW].all()
    seen_by_some_layer_always = "mistral" not in kind
    assert moved[2 * WINDOW :].any() == seen_by_some_layer_always


@settings(max_examples=15)
@given(tokens=tokens_of, cuts=st.sets(st.integers(1, 89)), kind=st.sampled_from(SLIDING))
def test_chunked_is_whole_across_windows(folder: Path, tokens: list[int], cuts: set[int], kind: str) -> None:
    model = loaded(kind, folder)
    slots, bounds = slots_of(model), [0, *sorted(cut for cut in cuts if cut < len(tokens)), len(tokens)]
    rows = [Row(1, start, end - start, wanted=end - start) for start, end in pairwise(bounds)]
    parts = [model.forward(tokens[row.start : row.start + row.count], [row], slots) for row in rows]
    torch.testing.assert_close(torch.cat(parts), whole(model, tokens), atol=1e-5, rtol=1e-5)


@settings(max_examples=10)
@given(tokens=tokens_of, kind=st.sampled_from(SLIDING))
def test_hit_is_miss_across_windows(folder: Path, tokens: list[int], kind: str) -> None:
    model = loaded(kind, folder)
    slots, hit = slots_of(model), (len(tokens) - 1) // BLOCK
    model.forward(tokens, [Row(0, 0, len(tokens), wanted=0)], slots)
    for index in range(hit):
        block = slots.keep(0, index, NOWHERE)
        assert block is not None
        slots.bring_in(2, index, [block])
    start = hit * BLOCK
    rest = model.forward(tokens[start:], [Row(2, start, len(tokens) - start)], slots)
    torch.testing.assert_close(rest[0], whole(model, tokens)[-1], atol=1e-5, rtol=1e-5)


@settings(max_examples=10)
@given(first=tokens_of, second=tokens_of, kind=st.sampled_from(SLIDING))
def test_batched_decode_is_alone_across_windows(folder: Path, first: list[int], second: list[int], kind: str) -> None:
    """Two sequences of different lengths take their last tokens one by one in the same steps, apart in their slots."""
    model = loaded(kind, folder)
    slots, tail = slots_of(model), 3
    for slot, tokens in ((2, first), (0, second)):
        model.forward(tokens[:-tail], [Row(slot, 0, len(tokens) - tail, wanted=0)], slots)
    for back in range(tail, 0, -1):
        rows = [Row(2, len(first) - back, 1), Row(0, len(second) - back, 1)]
        found = model.forward([first[-back], second[-back]], rows, slots)
    for logits, tokens in zip(found, (first, second), strict=True):
        torch.testing.assert_close(logits, whole(model, tokens)[-1], atol=1e-5, rtol=1e-5)
