"""The check of a CUDA device, made on the CPU: it sees agreement, and what would be wrong."""

import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from bench import gpu, products
from bench.gpu import keeps_bits, measured
from kernels import KV_CODES, DenseProduct, Float8Product, KVCodes, Product, RotatedInt8Product, Storage, quantize
from tests.worker.tiny import write_tiny
from worker.kv.shape import Block
from worker.kv.store import copy_block
from worker.model import Model
from worker.rows import Row
from worker.weights import Weights, open_weights

CPU = torch.device("cpu")

torch.set_num_threads(1)  # small tensors: a second thread costs more than it does


@pytest.fixture
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Weights:
    """Of a tiny model that multiplies as it would on CUDA, where any processor has bfloat16."""
    monkeypatch.setattr("worker.linears.FloatProduct", DenseProduct)
    monkeypatch.setattr(gpu, "_STEPS", [[Row(0, 0, 9)], [Row(slot, 9, 1) for slot in range(2)]])
    monkeypatch.setattr(gpu, "multiplies_float8", lambda _device: True)
    monkeypatch.setattr(gpu, "_UNTIMED", 0)
    monkeypatch.setattr(gpu, "_TIMED", 1)
    monkeypatch.setattr(products, "_CALLS", 1)
    monkeypatch.setattr(products, "SHAPES", [(64, 128)])
    monkeypatch.setattr(products, "ROWS", [1, 20])
    return open_weights(write_tiny(tmp_path / "tiny.gguf"))


def test_without_a_device_it_says_so_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(sys, "argv", ["bench.gpu", "--json"])
    assert gpu.main() == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "needs a CUDA device" in err


def test_the_same_computation_agrees_and_is_timed(weights: Weights) -> None:
    figures = measured(weights, CPU)
    assert figures["agrees"]
    assert figures["agreement"]["float32"] <= 1e-6 < figures["agreement"]["bfloat16"]
    assert list(figures["agreement"]) == list(figures["steps"]) == ["float32", "bfloat16", "fp8", "w8a8"]
    assert all(list(times) == ["1 of 9", "2 of 1"] for times in figures["steps"].values())
    assert all(milliseconds > 0 for times in figures["steps"].values() for milliseconds in times.values())
    assert list(figures["kv"]) == ["int8", "fp8"]
    assert all(one["tiers_keep_bits"] and list(one["steps"]) == ["1 of 9", "2 of 1"] for one in figures["kv"].values())
    assert all(1e-6 < one["error"] <= gpu.KV_ALLOWED[codes] for codes, one in figures["kv"].items())
    kept = figures["products"]["64 x 128"]
    assert list(kept) == ["bfloat16", "fp8", "w8a8"]
    assert all(list(one["us"]) == ["1", "20"] and min(one["us"].values()) > 0 for one in kept.values())
    figures |= {"card": "none", "torch": torch.__version__}
    assert "w8a8" in gpu._as_text(figures)
    assert "KV in fp8" in gpu._as_text(figures)


def test_a_card_without_fp8_is_checked_for_the_rest(weights: Weights, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "multiplies_float8", lambda _device: False)
    assert list(measured(weights, CPU)["agreement"]) == ["float32", "bfloat16", "w8a8"]


@pytest.mark.parametrize(("storage", "kind"), [("fp8", Float8Product), ("w8a8", RotatedInt8Product)])
def test_codes_with_a_wrong_scale_are_further_off_than_is_allowed(
    storage: Storage, kind: type[Product], weights: Weights, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = kind.__call__
    monkeypatch.setattr(kind, "__call__", lambda self, x: plain(self, x) * (1.5 if x.dtype == torch.bfloat16 else 1))
    model = Model(weights, torch.bfloat16, storage=storage)
    assert gpu._error(model, weights, storage) > gpu.ALLOWED[storage]


def test_a_product_that_is_off_does_not_agree(weights: Weights, monkeypatch: pytest.MonkeyPatch) -> None:
    off = 1.0
    plain = DenseProduct.__call__

    def scaled(product: DenseProduct, x: Tensor) -> Tensor:
        nonlocal off
        off += 1e-4  # one side of the comparison is computed before the other
        return plain(product, x) * off

    monkeypatch.setattr(DenseProduct, "__call__", scaled)
    assert not measured(weights, CPU)["agrees"]


@pytest.mark.parametrize("codes", KV_CODES)
def test_kv_whose_codes_have_a_wrong_scale_is_further_off_than_is_allowed(
    codes: KVCodes, weights: Weights, monkeypatch: pytest.MonkeyPatch
) -> None:
    def off(x: Tensor, dtype: torch.dtype, dim: int = -1) -> tuple[Tensor, Tensor]:
        return quantize(x * (1.5 if x.dtype == torch.bfloat16 else 1), dtype, dim)

    monkeypatch.setattr("kernels.paged.quantize", off)
    assert gpu._of_codes(weights, CPU, codes)["error"] > gpu.KV_ALLOWED[codes]


def test_a_block_that_comes_back_changed_is_seen(weights: Weights, monkeypatch: pytest.MonkeyPatch) -> None:
    def one_bit_off(into: Block, source: Block) -> None:
        copy_block(into, source)
        into[1].view(torch.uint8)[..., 0] ^= 1

    model = Model(weights, torch.float32)
    assert keeps_bits(model)
    monkeypatch.setattr("worker.kv.copying.copy_block", one_bit_off)
    assert not keeps_bits(model)
