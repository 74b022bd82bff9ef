"""What weights and KV in fewer bits cost, measured on a tiny model."""

from pathlib import Path

import torch

from bench.quality import measure
from tests.worker.tiny import write_tiny
from worker.weights import open_weights

torch.set_num_threads(1)  # small tensors: a second thread costs more than it does


def test_every_storage_and_every_kind_of_kv_stands_beside_float32(tmp_path: Path) -> None:
    measured = measure(open_weights(write_tiny(tmp_path / "tiny.gguf")), range(5, 69))
    figures, kv = measured["weights"], measured["kv"]
    assert figures["float32"] == {"perplexity": figures["float32"]["perplexity"], "kl": 0, "same_top": 1}
    assert {"file", "file-a8", "int8", "int4", "fp8", "w8a8"} < set(figures)
    assert figures["file"]["kl"] < 1e-5
    assert all(0 < figures[name]["kl"] < 0.1 for name in ("int8", "int4", "fp8", "w8a8"))
    assert figures["w8a8"]["kl"] < figures["fp8"]["kl"]
    assert kv["float32"] == figures["float32"] | {"bytes_per_token": 2 * 3 * 2 * 16 * 4}
    assert 0 <= kv["float16"]["kl"] < 1e-5
    assert kv["float16"]["bytes_per_token"] == 2 * 3 * 2 * 16 * 2
    assert 0 < kv["int8"]["kl"] < kv["fp8"]["kl"] < 0.1
    assert kv["int8"]["bytes_per_token"] == kv["fp8"]["bytes_per_token"] == 2 * 3 * 2 * (16 + 2)
