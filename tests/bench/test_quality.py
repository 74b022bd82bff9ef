"""What weights in fewer bits cost, measured on a tiny model."""

from pathlib import Path

import torch

from bench.quality import measure
from tests.worker.tiny import write_tiny
from worker.weights import open_weights

torch.set_num_threads(1)  # small tensors: a second thread costs more than it does


def test_every_storage_stands_beside_float32(tmp_path: Path) -> None:
    figures = measure(open_weights(write_tiny(tmp_path / "tiny.gguf")), range(5, 69))
    assert figures["float32"] == {"perplexity": figures["float32"]["perplexity"], "kl": 0, "same_top": 1}
    assert {"int8", "int4", "fp8", "w8a8"} < set(figures)
    assert all(0 < row["kl"] < 0.1 for name, row in figures.items() if name not in ("float32", "float16", "bfloat16"))
    assert figures["w8a8"]["kl"] < figures["fp8"]["kl"]
