"""Where the model computes: what is refused, and that nothing is left on the CPU where it should be on the device.

The stand-in for CUDA is torch's device without memory, "meta", where only shapes are computed. It lets tensors of the
CPU pass where CUDA would not, so every single operation is looked at.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from weakref import ref

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from kernels import DenseProduct, Storage
from tests.worker.kv.layouts import Fp8Pages, Int8Pages, LayoutClass
from tests.worker.live import TOKEN
from tests.worker.peers import Peer
from tests.worker.rig import Rig, ask, greedy
from tests.worker.test_main import sentence
from tests.worker.tiny import LAYERS, metadata, tensors, vocabulary, write_gguf
from worker.__main__ import main
from worker.config import ConfigError
from worker.device import device_of
from worker.kv import PagedLayout, SlotLayout
from worker.model import Model
from worker.rows import Row
from worker.tokenizer import Vocabulary
from worker.weights import ModelConfig, QuantBlocks, Weights, open_weights

META = torch.device("meta")


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> torch.device:
    """The second device of a machine that has CUDA, to the eye."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    return torch.device("cuda", 1)


@pytest.fixture
def no_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def test_auto_is_cuda_where_there_is_one(cuda: torch.device) -> None:
    assert device_of("auto") == device_of("cuda") == cuda
    assert device_of("cpu") == torch.device("cpu")


@pytest.mark.usefixtures("no_cuda")
def test_without_cuda_auto_is_the_cpu_and_cuda_is_refused() -> None:
    assert device_of("auto") == device_of("cpu") == torch.device("cpu")
    with pytest.raises(ConfigError, match=r"--device cuda needs a CUDA device, .*; use --device cpu or auto"):
        device_of("cuda")


@pytest.mark.usefixtures("cuda")
@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--kv-layout", "slots"], "--kv-layout slots is for the CPU alone"),
        (["--deterministic"], "--deterministic is for the CPU alone"),
        (["--weights", "int4"], "--weights int4 is packed for the CPU alone; use int8, fp8 or auto"),
        (["--weights", "float16"], "--weights float16 is packed for the CPU alone; use int8, fp8 or auto"),
        (["--weights", "fp8", "--dtype", "float32"], "--weights fp8 needs dtype bfloat16"),
        (["--dtype", "float32", "--weights", "bfloat16"], "--weights bfloat16 needs dtype bfloat16"),
    ],
)
def test_what_cuda_cannot_do_is_one_sentence(
    flags: list[str], reason: str, tiny_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "token").write_text(TOKEN)
    required = ["--port", "0", "--token-file", str(tmp_path / "token"), "--threads", "1", "--model", str(tiny_path)]
    assert reason in sentence(main([*required, *flags]), capsys)


def test_fp8_is_not_for_the_cpu(tiny_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "token").write_text(TOKEN)
    required = ["--port", "0", "--token-file", str(tmp_path / "token"), "--threads", "1", "--model", str(tiny_path)]
    assert "fp8 needs a CUDA device" in sentence(main([*required, "--device", "cpu", "--weights", "fp8"]), capsys)


@pytest.mark.usefixtures("cuda")
def test_a_device_without_room_is_one_sentence(
    tiny_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate\n")

    monkeypatch.setattr("worker.__main__.Model", full)
    (tmp_path / "token").write_text(TOKEN)
    code = main(["--port", "0", "--token-file", str(tmp_path / "token"), "--threads", "1", "--model", str(tiny_path)])
    assert "lower --blocks" in sentence(code, capsys)


class OneDevice(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """No operation takes tensors of two devices; a number may come from anywhere."""

    def __torch_dispatch__(
        self, func: Any, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        taken = [part for part in tree_leaves((args, kwargs)) if isinstance(part, Tensor) and part.dim()]
        assert len({part.device for part in taken}) <= 1, str(func)
        return func(*args, **(kwargs or {}))


def forward_on_meta(model: Model, pages: type[PagedLayout] = PagedLayout) -> Tensor:
    """One decoding token beside a chunk of a prompt."""
    layout = pages(model.kv_shape, slots=2, context=64, blocks=16, block_size=8, device=META)
    for slot, tokens in ((0, 20), (1, 30)):
        layout.slots.take()
        assert layout.prepare(slot, 0, tokens)
    with OneDevice():  # type: ignore[no-untyped-call]
        return model.forward([5] * 31, [Row(0, 19, 1), Row(1, 0, 30, wanted=2)], layout)


@pytest.mark.parametrize(
    ("dtype", "storage"),
    [
        (torch.float32, "float32"),
        (torch.float32, "w8a8"),
        (torch.bfloat16, "bfloat16"),
        (torch.bfloat16, "fp8"),
        (torch.bfloat16, "w8a8"),
    ],
)
def test_a_forward_pass_needs_nothing_of_the_cpu(tiny_path: Path, dtype: torch.dtype, storage: Storage) -> None:
    logits = forward_on_meta(Model(open_weights(tiny_path), dtype, storage=storage, device=META))
    assert (logits.device, logits.dtype, logits.shape) == (META, torch.float32, (3, len(vocabulary())))


@pytest.mark.parametrize("kind", ["qwen2", "qwen3", "mistral"])
def test_nor_do_biases_norms_of_heads_and_windows(kind: str, tmp_path: Path) -> None:
    model = Model(open_weights(Peer(kind).write_folder(tmp_path / kind)), torch.bfloat16, device=META)
    assert forward_on_meta(model).device == META


@pytest.mark.parametrize("pages", [Int8Pages, Fp8Pages])
def test_nor_do_codes_of_kv(pages: type[PagedLayout], tiny_path: Path) -> None:
    model = Model(open_weights(tiny_path), torch.bfloat16, device=META)
    assert forward_on_meta(model, pages).device == META


class Watched:
    """Weights that remember which of the tensors they gave out are still there, by layer."""

    def __init__(self, weights: Weights) -> None:
        self._weights = weights
        self._given: dict[str, list[ref[Tensor]]] = {}
        self.alive: set[str] = set()  # layers other than the one being read, whenever one was read

    @property
    def config(self) -> ModelConfig:
        return self._weights.config

    @property
    def files(self) -> list[Path]:
        return self._weights.files

    def tensor(self, name: str) -> Tensor:
        tensor, layer = self._weights.tensor(name), ".".join(name.split(".")[:3])
        self.alive |= {
            other for other, given in self._given.items() if other != layer and any(one() is not None for one in given)
        }
        self._given.setdefault(layer, []).append(ref(tensor))
        return tensor

    def blocks(self, name: str) -> QuantBlocks | None:
        return self._weights.blocks(name)

    @property
    def layers(self) -> Sequence[str]:
        return [layer for layer in self._given if layer.startswith("model.layers.")]


def test_a_file_goes_to_the_device_layer_by_layer(tiny_path: Path) -> None:
    weights = Watched(open_weights(tiny_path))
    Model(weights, torch.float32, device=META)
    assert len(weights.layers) == LAYERS
    assert not weights.alive


def test_a_tied_head_is_not_on_the_device_twice(tmp_path: Path) -> None:
    stored = {name: part for name, part in tensors().items() if name != "output.weight"}
    model = Model(open_weights(write_gguf(tmp_path / "tied", metadata(), stored)), torch.bfloat16, device=META)
    assert isinstance(model._head._product, DenseProduct)
    assert model._head._product._weight is model._embedding


def greedy_tokens(model: Model, names: Vocabulary, layout: LayoutClass) -> list[list[int]]:
    rig = Rig(model, names, layout=layout)
    prompts = [list(range(10, 10 + count)) for count in (3, 20, 70)]
    replies = [rig.submit(ask(prompt, sampling=greedy(12))) for prompt in prompts]
    rig.run()
    return [reply.tokens() for reply in replies]


def test_plain_products_over_pages_say_what_the_cpus_own_way_says(
    tiny_path: Path, tiny_model: Model, tiny_vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The code of CUDA, on tensors of the CPU."""
    monkeypatch.setattr("worker.linears.FloatProduct", DenseProduct)
    plain = Model(open_weights(tiny_path), torch.float32)
    assert isinstance(plain._head._product, DenseProduct)
    found = greedy_tokens(plain, tiny_vocabulary, PagedLayout)
    assert found == greedy_tokens(tiny_model, tiny_vocabulary, SlotLayout)
    assert [len(tokens) for tokens in found] == [12, 12, 12]
