"""The forward pass: one answer however a sequence is cut into steps and whoever is beside it."""

from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from kernels.native import native
from tests.worker.kv.layouts import LAYOUTS, LayoutClass
from tests.worker.rig import BLOCK
from tests.worker.tiny import CONTEXT, Value, metadata, tensors, vocabulary, write_gguf
from worker.kv import Layout, SlotLayout
from worker.kv.radix import NOWHERE
from worker.model import Model, fingerprint
from worker.rows import Row
from worker.weights import ModelError, open_weights

SLOTS = 4
prompts = st.lists(st.integers(3, 280), min_size=1, max_size=24)


@pytest.fixture(scope="module")
def coded_model(tiny_path: Path) -> Model:
    """Whose matrices are all multiplied by their codes, if there is a C compiler."""
    return Model(open_weights(tiny_path), torch.float32, storage="int4" if native() else None)


def fresh(model: Model, layout: LayoutClass) -> Layout:
    """Whose blocks are NaN until they are written."""
    made = layout(model.kv_shape, slots=SLOTS, context=64, blocks=16, block_size=BLOCK)
    for block in range(made.pool.total):
        made.store.spoil(block)
    return made


def forward(model: Model, layout: Layout, tokens: list[int], rows: list[Row]) -> Tensor:
    """One step, as the engine takes it: room first."""
    assert all(layout.prepare(row.slot, row.start, row.start + row.count) for row in rows)
    return model.forward(tokens, rows, layout)


def alone(model: Model, tokens: list[int]) -> Tensor:
    """Logits after the last token, computed in one piece in a fresh slot: what any layout has to give."""
    return forward(model, fresh(model, SlotLayout), tokens, [Row(0, 0, len(tokens))])[0]


@settings(max_examples=25)
@given(layout=st.sampled_from(LAYOUTS), tokens=prompts, cuts=st.sets(st.integers(1, 23)))
def test_chunked_is_whole(tiny_model: Model, layout: LayoutClass, tokens: list[int], cuts: set[int]) -> None:
    room = fresh(tiny_model, layout)
    bounds = [0, *sorted(cut for cut in cuts if cut < len(tokens)), len(tokens)]
    for start, end in pairwise(bounds):
        logits = forward(tiny_model, room, tokens[start:end], [Row(1, start, end - start)])
    torch.testing.assert_close(logits[0], alone(tiny_model, tokens), atol=1e-5, rtol=0)


@settings(max_examples=15)
@given(tokens=st.lists(st.integers(3, 280), min_size=6, max_size=24), others=st.integers(0, SLOTS - 1))
def test_few_tokens_by_their_codes_get_the_same_bits_in_any_batch(
    coded_model: Model, tokens: list[int], others: int
) -> None:
    """All layers in one call, as there are few tokens of each: at once, in two steps, beside others."""
    *start, one, two, last = tokens
    room, apart = fresh(coded_model, SlotLayout), fresh(coded_model, SlotLayout)
    for part in (room, apart):
        forward(coded_model, part, start, [Row(0, 0, len(start), 0)])
    beside = [Row(slot, 0, 1) for slot in range(1, 1 + others)]
    forward(coded_model, apart, [7] * others + [one, two], [*beside, Row(0, len(start), 2)])
    later = forward(coded_model, apart, [last], [Row(0, len(start) + 2, 1)])
    assert torch.equal(forward(coded_model, room, [one, two, last], [Row(0, len(start), 3)]), later)


@settings(max_examples=25)
@given(
    st.sampled_from(LAYOUTS), st.lists(prompts, min_size=1, max_size=SLOTS), st.permutations(range(SLOTS)), st.data()
)
def test_batched_is_alone(
    tiny_model: Model, layout: LayoutClass, batch: list[list[int]], order: list[int], data: st.DataObject
) -> None:
    """Each sequence takes steps of its own length; slots are in any order and some stay empty."""
    room = fresh(tiny_model, layout)
    done = [0] * len(batch)
    while any(done[index] < len(tokens) for index, tokens in enumerate(batch)):
        left = [index for index, tokens in enumerate(batch) if done[index] < len(tokens)]
        rows = [
            (index, Row(order[index], done[index], data.draw(st.integers(1, len(batch[index]) - done[index]))))
            for index in left
        ]
        rows.sort(key=lambda pair: pair[1].count > 1)
        step = [token for index, row in rows for token in batch[index][row.start : row.start + row.count]]
        logits = forward(tiny_model, room, step, [row for _, row in rows])
        for (index, row), found in zip(rows, logits, strict=True):
            done[index] += row.count
            torch.testing.assert_close(found, alone(tiny_model, batch[index][: done[index]]), atol=1e-5, rtol=0)


@settings(max_examples=10)
@given(layout=st.sampled_from(LAYOUTS), tokens=st.lists(st.integers(3, 280), min_size=2 * BLOCK + 1, max_size=40))
def test_hit_is_miss(tiny_model: Model, layout: LayoutClass, tokens: list[int]) -> None:
    room = fresh(tiny_model, layout)
    forward(tiny_model, room, tokens, [Row(0, 0, len(tokens))])
    for index in range(2):
        block = room.keep(0, index, NOWHERE)
        assert block is not None
        room.pool.ready(block)
        room.bring_in(3, index, [block])
    start = 2 * BLOCK
    logits = forward(tiny_model, room, tokens[start:], [Row(3, start, len(tokens) - start)])
    torch.testing.assert_close(logits[0], alone(tiny_model, tokens), atol=1e-5, rtol=0)


def test_every_token_of_the_context_moves_the_logits(tiny_model: Model) -> None:
    tokens = list(range(10, 30))
    before = alone(tiny_model, tokens)
    for place in range(len(tokens)):
        changed = [*tokens[:place], 200, *tokens[place + 1 :]]
        assert (alone(tiny_model, changed) - before).abs().max() > 1e-3


def test_logits_that_nobody_wants_are_not_computed(tiny_model: Model, layout: LayoutClass) -> None:
    room = fresh(tiny_model, layout)
    assert forward(tiny_model, room, [5, 6], [Row(0, 0, 2, wanted=0)]).shape == (0, len(vocabulary()))
    mixed = forward(tiny_model, room, [7, 5, 6], [Row(0, 2, 1), Row(1, 0, 2, wanted=0)])
    assert mixed.shape == (1, len(vocabulary()))
    torch.testing.assert_close(mixed[0], alone(tiny_model, [5, 6, 7]), atol=1e-5, rtol=0)


def test_a_model_without_a_head_of_its_own_uses_its_embedding(tmp_path: Path) -> None:
    stored = tensors()
    del stored["output.weight"]
    tied = Model(open_weights(write_gguf(tmp_path / "tied", metadata(), stored)), torch.float32)
    stored["output.weight"] = stored["token_embd.weight"]
    untied = Model(open_weights(write_gguf(tmp_path / "untied", metadata(), stored)), torch.float32)
    assert torch.equal(alone(tied, [5, 6]), alone(untied, [5, 6]))


def test_dimensions_are_those_of_the_metadata(tiny_path: Path) -> None:
    config = open_weights(tiny_path).config
    assert (config.layers, config.width, config.heads, config.kv_heads, config.head_dim) == (3, 64, 4, 2, 16)
    assert (config.vocabulary, config.context, config.feed_forward) == (len(vocabulary()), CONTEXT, 96)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"general.architecture": "gemma3"}, "'gemma3' is not supported"),
        ({"llama.rope.scaling.type": "dynamic", "llama.rope.scaling.factor": 2.0}, "'dynamic' is not supported"),
    ],
)
def test_another_architecture_is_refused_by_name(change: dict[str, Value], reason: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=reason):
        Model(open_weights(write_gguf(tmp_path / "f", metadata() | change, tensors())), torch.float32)


@pytest.mark.parametrize("key", ["block_count", "embedding_length", "attention.head_count", "context_length"])
def test_a_missing_dimension_is_refused_by_name(key: str, tmp_path: Path) -> None:
    entries = metadata()
    del entries[f"llama.{key}"]
    with pytest.raises(ModelError, match=rf"llama\.{key} is missing"):
        Model(open_weights(write_gguf(tmp_path / "f", entries, tensors())), torch.float32)


def test_a_missing_tensor_is_refused_by_name(tmp_path: Path) -> None:
    stored = tensors()
    del stored["blk.1.ffn_up.weight"]
    with pytest.raises(ModelError, match=r"blk\.1\.ffn_up\.weight"):
        Model(open_weights(write_gguf(tmp_path / "f", metadata(), stored)), torch.float32)


def test_the_fingerprint_names_weights_and_dtype(tiny_path: Path, tmp_path: Path) -> None:
    tiny = open_weights(tiny_path)
    other = open_weights(write_gguf(tmp_path / "other", metadata(), tensors(seed=1)))
    prints = {fingerprint(tiny, torch.float32), fingerprint(tiny, torch.bfloat16), fingerprint(other, torch.float32)}
    assert len(prints) == 3
    assert all(len(text) == 32 and int(text, 16) for text in prints)
    (tmp_path / "copy").write_bytes(tiny_path.read_bytes())
    assert fingerprint(open_weights(tmp_path / "copy"), torch.float32) == fingerprint(tiny, torch.float32)
