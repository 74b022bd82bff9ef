"""A forward pass by kinds of matrices, measured on a tiny model."""

from pathlib import Path

import torch

from bench.forward import measure
from tests.worker.tiny import write_tiny
from worker.weights import open_weights

torch.set_num_threads(1)  # small tensors: a second thread costs more than it does


def test_every_pass_of_every_kind_takes_its_time(tmp_path: Path) -> None:
    figures = measure(open_weights(write_tiny(tmp_path / "tiny.gguf")), ["file-a8", "float32"], rounds=2)
    assert list(figures) == ["file-a8", "float32"]
    for times in figures.values():
        assert list(times) == ["1", "8", "32", "prompt"]
        assert all(spent > 0 for spent in times.values())
