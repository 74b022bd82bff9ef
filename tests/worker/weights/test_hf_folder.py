"""A folder's tensors: one file or shards, the same values either way; and one error for what is not whole."""

import json
from collections.abc import Callable
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests.worker.peers import LAYERS, Peer
from worker.model import Model, fingerprint
from worker.weights import ModelError, open_weights
from worker.weights.inventory import expected

NORM = "model.norm.weight"
Change = Callable[[dict[str, Tensor]], Any]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Peer("llama").write_folder(tmp_path_factory.mktemp("whole") / "model")


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    copytree(whole, tmp_path / "model")
    return tmp_path / "model"


def rewrite(folder: Path, change: Change) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


def configure(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def refusal(folder: Path) -> str:
    with pytest.raises(ModelError) as caught:
        open_weights(folder)
    return str(caught.value)


def test_every_tensor_is_there_with_its_shape(whole: Path) -> None:
    weights, stored = open_weights(whole), load_file(whole / "model.safetensors")
    shapes = expected(weights.config)
    assert len(shapes) == 3 + 9 * LAYERS
    for name, shape in shapes.items():
        assert weights.tensor(name).shape == shape
        assert torch.equal(weights.tensor(name), stored[name])
        assert weights.blocks(name) is None


def test_shards_hold_the_same_as_one_file(whole: Path, tmp_path: Path) -> None:
    sharded = Peer("llama").write_folder(tmp_path / "sharded", shard="60KB")
    assert len(list(sharded.glob("*.safetensors"))) > 2
    one, many = open_weights(whole), open_weights(sharded)
    assert many.config == one.config
    assert all(torch.equal(one.tensor(name), many.tensor(name)) for name in expected(one.config))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_tensors_keep_their_own_dtype(folder: Path, dtype: torch.dtype) -> None:
    rewrite(folder, lambda tensors: tensors.update({name: values.to(dtype) for name, values in tensors.items()}))
    assert open_weights(folder).tensor(NORM).dtype == dtype
    assert Model(open_weights(folder), torch.float32).kv_shape.dtype == torch.float32


def test_what_old_versions_wrote_beside_the_weights_is_passed_over(folder: Path) -> None:
    name = "model.layers.0.self_attn.rotary_emb.inv_freq"
    rewrite(folder, lambda tensors: tensors.update({name: torch.ones(8)}))
    configure(folder, tie_word_embeddings=True)
    assert open_weights(folder).config.tied


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda tensors: tensors.pop(NORM), f"tensor {NORM} is missing"),
        (lambda tensors: tensors.update({NORM: torch.ones(3)}), rf"tensor {NORM} is [3]; the configuration says [64]"),
        (lambda tensors: tensors.update(spare=torch.ones(3)), "tensor spare is not supported in architecture 'llama'"),
        (
            lambda tensors: tensors.update({"model.layers.0.self_attn.q_proj.bias": torch.ones(64)}),
            "tensor model.layers.0.self_attn.q_proj.bias is not supported",
        ),
        (
            lambda tensors: tensors.update({NORM: torch.ones(64).to(torch.float8_e4m3fn)}),
            f"tensor {NORM} is stored as F8_E4M3; F32, F16, BF16 are supported",
        ),
        (lambda tensors: tensors.update({NORM: torch.ones(64, dtype=torch.int8)}), f"tensor {NORM} is stored as I8"),
    ],
)
def test_a_tensor_that_does_not_belong_is_refused_by_name(folder: Path, change: Change, reason: str) -> None:
    rewrite(folder, change)
    assert reason in refusal(folder)


def test_a_tensor_that_holds_what_is_no_number_is_refused_by_name(folder: Path) -> None:
    rewrite(folder, lambda tensors: tensors.update({NORM: torch.full((64,), torch.inf)}))
    with pytest.raises(ModelError, match=f"tensor {NORM} holds what is no number"):
        Model(open_weights(folder), torch.float32)


def index(places: object) -> Callable[[Path], object]:
    def write(folder: Path) -> None:
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))

    return write


def pickled(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (index({NORM: "../secret.safetensors"}), "'../secret.safetensors', which is no safetensors file beside it"),
        (index({NORM: "/etc/x.safetensors"}), "no safetensors file beside it"),
        (index({NORM: "model.bin"}), "'model.bin', which is no"),
        (index({NORM: "gone.safetensors"}), "gone.safetensors is missing"),
        (index({NORM: 5}), "does not name a file for each tensor"),
        (index(None), "does not name a file for each tensor"),
        (index({}), "names 0 files"),
        (lambda folder: (folder / "model.safetensors.index.json").write_text("[]"), "is not a JSON object"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"\xff" * 64), "not a whole safetensors file"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b""), "not a whole safetensors file"),
        (lambda folder: (folder / "model.safetensors").unlink(), "holds no model.safetensors"),
        (pickled, "pytorch_model.bin is a pickle, which is never read; convert the folder to safetensors"),
        (lambda folder: (folder / "config.json").unlink(), "config.json is missing"),
        (lambda folder: (folder / "config.json").write_text("{"), "config.json is not a JSON object"),
        (lambda folder: (folder / "config.json").write_bytes(b"\0" * (65 << 20)), "larger than 64 MiB"),
    ],
)
def test_a_folder_that_is_not_whole_is_refused(folder: Path, damage: Callable[[Path], object], reason: str) -> None:
    damage(folder)
    assert reason in refusal(folder)


def test_a_file_cut_short_is_refused(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    assert "not a whole safetensors file" in refusal(folder)


def test_a_tensor_in_two_shards_is_refused(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "a.safetensors")
    save_file({NORM: torch.ones(64)}, folder / "b.safetensors")
    index({NORM: "a.safetensors", "lm_head.weight": "b.safetensors"})(folder)
    assert "a tensor lies in two safetensors files" in refusal(folder)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja"])
def test_the_fingerprint_names_every_file_that_is_read(folder: Path, name: str) -> None:
    for text in ("tokenizer.json", "chat_template.jinja"):
        (folder / text).write_text("{}")
    (folder / "README.md").write_text("of no weight")
    before = fingerprint(open_weights(folder), torch.float32)
    (folder / "README.md").unlink()
    assert fingerprint(open_weights(folder), torch.float32) == before
    if name == "model.safetensors":
        rewrite(folder, lambda tensors: tensors[NORM].add_(1))
    else:
        (folder / name).write_text((folder / name).read_text() + "\n")
    assert fingerprint(open_weights(folder), torch.float32) != before
