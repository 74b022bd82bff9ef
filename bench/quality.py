"""What weights and KV in fewer bits cost: perplexity, and distance to the model in float32, on a fixed text.

    python -m bench.quality [--model smollm2] [--text FILE] [--tokens 2048] [--json]

perplexity   exp of the mean negative log likelihood of each next token of the text
kl           mean Kullback-Leibler divergence from the float32 model's next-token distribution, in nats
same_top     share of positions at which both find the same token likeliest

The text goes through the worker's own forward pass in windows of 256 tokens, each on its own. int8 and int4 are what
plain numbers become: of a quantised file its values are taken, not its codes, which `file` and `file-a8` have. fp8 and
w8a8 (int8 on CUDA) are the codes of CUDA, multiplied by the CPU, where the rest is computed in float32.
"""

import argparse
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor

from bench.report import machine, publish, table
from gateway.up.model import find_model
from kernels import KV_CODES, Storage, compute_dtype, multiplies_float16
from kernels.native import native
from worker.kv import KVShape, SlotLayout, kept_as
from worker.model import Model
from worker.rows import Row
from worker.tokenizer import read_vocabulary
from worker.weights import Weights, open_weights

TEXT = Path(__file__).parent / "texts" / "mixed.txt"
_WINDOW = 256


def main() -> int:
    flags = _flags()
    weights = open_weights(find_model(flags.model).path)
    tokenizer = Tokenizer.from_str(read_vocabulary(weights).json)
    tokens = tokenizer.encode(flags.text.read_text("utf-8")).ids[: flags.tokens]
    figures = {"tokens": len(tokens), "text": flags.text.name, **measure(weights, tokens)}
    figures |= {"model": flags.model, "torch": torch.__version__, "machine": machine()}
    publish("quality", figures, _as_text(figures), as_json=flags.json)
    return 0


class _PlainNumbers:
    """Weights as a file has them that is not quantised."""

    def __init__(self, weights: Weights) -> None:
        self.config, self.files, self.tensor = weights.config, weights.files, weights.tensor

    def blocks(self, _name: str) -> None:
        return None


def measure(weights: Weights, tokens: Sequence[int]) -> dict[str, dict[str, dict[str, float]]]:
    """Figures by storage of weights, beside KV in float32, and by what KV is kept as, beside weights in float32."""
    windows = [list(tokens[start : start + _WINDOW]) for start in range(0, len(tokens) - 1, _WINDOW)]
    exact = Model(weights, torch.float32, _WINDOW)
    truths = [_logprobs(exact, window) for window in windows]
    found = {"float32": _compare(windows, truths, truths)}
    for storage, dtype in _others():
        model = Model(weights if storage.startswith("file") else _PlainNumbers(weights), dtype, _WINDOW, storage)
        found[storage] = _compare(windows, truths, (_logprobs(model, window) for window in windows))
    kept = {"float32": found["float32"] | {"bytes_per_token": exact.kv_shape.bytes_per_token}}
    in_c = SlotLayout.computed_in_c(exact.kv_shape, exact.device)
    for kind in (*(["float16"] if in_c else []), *KV_CODES):
        shape = kept_as(kind, exact.kv_shape, computed_in_c=in_c)
        guesses = (_logprobs(exact, window, shape) for window in windows)
        kept[kind] = _compare(windows, truths, guesses) | {"bytes_per_token": shape.bytes_per_token}
    return {"weights": found, "kv": kept}


def _others() -> Iterator[tuple[Storage, torch.dtype]]:
    """What this processor can multiply."""
    if compute_dtype("auto") == torch.bfloat16:
        yield "bfloat16", torch.bfloat16
    if multiplies_float16():
        yield "float16", torch.float32
    if native() is not None:
        yield "file", torch.float32
        yield "file-a8", torch.float32
        yield "int8", torch.float32
        yield "int4", torch.float32
    yield "fp8", torch.float32
    yield "w8a8", torch.float32


def _compare(windows: list[list[int]], truths: Iterable[Tensor], guesses: Iterable[Tensor]) -> dict[str, float]:
    nll = divergence = 0.0
    same = count = 0
    for window, truth, guess in zip(windows, truths, guesses, strict=True):
        nll -= float(guess[:-1].gather(1, torch.tensor(window[1:]).unsqueeze(1)).sum())
        divergence += float((truth.exp() * (truth - guess)).sum())
        same += int((truth.argmax(-1) == guess.argmax(-1)).sum())
        count += len(window)
    return {
        "perplexity": round(math.exp(nll / (count - len(windows))), 3),
        "kl": round(divergence / count, 6),
        "same_top": round(same / count, 4),
    }


def _logprobs(model: Model, tokens: list[int], shape: KVShape | None = None) -> Tensor:
    """float32 [tokens, vocabulary]."""
    layout = SlotLayout(shape or model.kv_shape, slots=1, context=_WINDOW, blocks=1, block_size=16)
    return model.forward(tokens, [Row(0, 0, len(tokens), wanted=len(tokens))], layout).log_softmax(-1)


def _as_text(figures: dict[str, Any]) -> str:
    columns = ["perplexity", "KL", "same top"]
    weights, kv = ([[name, *row.values()] for name, row in figures[part].items()] for part in ("weights", "kv"))
    return "\n".join(
        [
            f"{figures['tokens']} tokens of {figures['text']}",
            table(["weights", *columns], weights),
            "",
            table(["KV", *columns, "bytes per token"], kv),
        ]
    )


def _flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.quality", description="Quality by quantization of weights and KV."
    )
    parser.add_argument("--model", default="smollm2", help="a model file, or `smollm2`")
    parser.add_argument("--text", type=Path, default=TEXT)
    parser.add_argument("--tokens", type=int, default=2048, help="of the text, from its start")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
