"""The check of a CUDA device, made on the CPU: it sees agreement, and what would be wrong."""

import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from bench import gpu
from bench.gpu import keeps_bits, measured
from kernels import DenseProduct
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
    assert list(figures["steps"]) == ["1 of 9", "2 of 1"]
    assert all(milliseconds > 0 for milliseconds in figures["steps"].values())


def test_a_product_that_is_off_does_not_agree(weights: Weights, monkeypatch: pytest.MonkeyPatch) -> None:
    off = 1.0
    plain = DenseProduct.__call__

    def scaled(product: DenseProduct, x: Tensor) -> Tensor:
        nonlocal off
        off += 1e-4  # one side of the comparison is computed before the other
        return plain(product, x) * off

    monkeypatch.setattr(DenseProduct, "__call__", scaled)
    assert not measured(weights, CPU)["agrees"]


def test_a_block_that_comes_back_changed_is_seen(weights: Weights, monkeypatch: pytest.MonkeyPatch) -> None:
    def one_bit_off(into: Block, source: Block) -> None:
        copy_block(into, source)
        into[1].view(torch.uint8)[..., 0] ^= 1

    model = Model(weights, torch.float32)
    assert keeps_bits(model)
    monkeypatch.setattr("worker.kv.copying.copy_block", one_bit_off)
    assert not keeps_bits(model)
