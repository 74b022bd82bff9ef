"""A GGUF model under our names: what its metadata says, rows in our order, and what is refused by its own name."""

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.worker.peers import Peer
from tests.worker.tiny import Stored, Value, f32, metadata, tensors, write_gguf
from worker.weights import ModelError, open_weights

Q, K = "model.layers.1.self_attn.q_proj.weight", "model.layers.1.self_attn.k_proj.weight"


def rotary(kind: str, **more: Value) -> dict[str, Value]:
    named: dict[str, Value] = {"type": kind, "factor": 4.0, **more}
    return {f"llama.rope.scaling.{key}": value for key, value in named.items()}


@pytest.mark.parametrize("name", [Q, K, "model.layers.0.mlp.down_proj.weight"])
def test_blocks_are_the_tensor_row_by_row(name: str, tiny_path: Path) -> None:
    weights = open_weights(tiny_path)
    blocks = weights.blocks(name)
    assert blocks is not None
    assert (blocks.bits, blocks.size) == (4, 32)
    assert torch.equal(blocks.dequantize(), weights.tensor(name))
    assert weights.blocks("model.norm.weight") is None


def test_rows_of_a_rotary_pair_lie_half_a_head_apart(tmp_path: Path) -> None:
    """Llama's file has them side by side; here row i of the file holds i everywhere."""
    stored = tensors()
    rows = np.repeat(np.arange(64, dtype="<f4"), 64).reshape(64, 64)
    stored["blk.1.attn_q.weight"] = Stored((64, 64), 0, rows.tobytes())
    weights = open_weights(write_gguf(tmp_path / "f", metadata(), stored))
    first_head = weights.tensor(Q)[:16, 0].tolist()
    assert first_head == [0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15]


def test_a_window_and_stretched_positions_are_read(tmp_path: Path) -> None:
    plain = open_weights(write_gguf(tmp_path / "plain", metadata(), tensors())).config
    entries = metadata() | {"llama.attention.sliding_window": 32} | rotary("linear")
    config = open_weights(write_gguf(tmp_path / "f", entries, tensors())).config
    assert (plain.windows, config.windows) == ((None,) * 3, (32,) * 3)
    assert config.rope.frequencies == tuple(frequency / 4 for frequency in plain.rope.frequencies)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"general.architecture": "gemma3"}, "'gemma3' is not supported in GGUF; llama, qwen2, qwen3 are"),
        ({"split.count": 3}, "split into several GGUF files"),
        ({"llama.expert_count": 8}, "expert_count names experts"),
        ({"llama.rope.dimension_count": 8}, "rope.dimension_count rotates a part"),
        ({"llama.attention.value_length": 8}, "attention.value_length differs"),
        ({"llama.attention.scale": 0.1}, "attention.scale is not supported"),
        ({"llama.rope.scale_linear": 2.0}, "rope.scale_linear is not supported"),
        ({"llama.attention.head_count_kv": [2, 2, 2]}, "head_count_kv is [2, 2, 2], not an integer"),
        ({"llama.block_count": 1 << 30}, "block_count is 1073741824; from 1"),
        ({"llama.feed_forward_length": 64}, "blk.0.ffn_gate.weight is [96, 64]; the configuration says [64, 64]"),
        (rotary("longrope"), "'longrope' is not supported; linear and yarn are"),
        (rotary("yarn", yarn_log_multiplier=0.1), "parameters of YaRN that are not supported"),
        (rotary("linear", factor=0.5), "the factor is 0.5"),
        ({"llama.rope.freq_base": 1.0}, "the base is 1.0"),
        (rotary("yarn") | {"llama.rope.freq_base": 0.0}, "the base is 0.0"),
    ],
)
def test_metadata_that_we_do_not_follow_is_refused_by_name(
    change: dict[str, Value], reason: str, tmp_path: Path
) -> None:
    with pytest.raises(ModelError) as caught:
        open_weights(write_gguf(tmp_path / "f", metadata() | change, tensors()))
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    "name", ["blk.0.attn_q_norm.weight", "blk.2.attn_sinks.weight", "blk.3.attn_q.weight", "spare"]
)
def test_a_tensor_that_the_model_has_no_use_for_is_refused_by_name(name: str, tmp_path: Path) -> None:
    stored = tensors() | {name: f32(np.random.default_rng(0), 16)}
    with pytest.raises(ModelError, match=f"tensor {name} is not supported in architecture 'llama'"):
        open_weights(write_gguf(tmp_path / "f", metadata(), stored))


@pytest.mark.parametrize("factors", [[1.0] * 3, [1.0] * 7 + [-1.0], [0.0] * 8])
def test_frequency_factors_that_fit_no_head_are_refused(factors: list[float], tmp_path: Path) -> None:
    stored = tensors() | {"rope_freqs.weight": Stored((len(factors),), 0, np.array(factors, "<f4").tobytes())}
    with pytest.raises(ModelError, match=r"rope_freqs\.weight does not hold a factor for each pair"):
        open_weights(write_gguf(tmp_path / "f", metadata(), stored))


def test_a_whole_converted_model_has_the_description_of_its_folder(tmp_path: Path) -> None:
    peer = Peer("qwen3")
    file, folder = open_weights(peer.write_gguf(tmp_path / "f")), open_weights(peer.write_folder(tmp_path / "folder"))
    assert file.config.architecture == folder.config.architecture == "qwen3"
    for name in ("layers", "width", "feed_forward", "heads", "kv_heads", "head_dim", "vocabulary", "tied", "qk_norm"):
        assert getattr(file.config, name) == getattr(folder.config, name)
    assert torch.equal(file.tensor(Q), folder.tensor(Q))
