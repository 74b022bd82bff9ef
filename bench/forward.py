"""A whole forward pass of the packaged model, by what its matrices are kept as: what of a step is the model's own.

    python -m bench.forward [--weights file-a8,float16,float32] [--threads 1] [--rounds 9] [--json]

1, 8, 32   one token of each of so many sequences, behind 256 others
prompt     512 tokens, in chunks of 256

Milliseconds, medians, KV as a worker keeps it here: CPU time of the one thread, or by the wall clock of several. The
kinds take turns, so that a busy machine is unfair to none.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any, get_args

import torch

from bench.report import machine, publish, table
from gateway.up.model import find_model
from kernels import Storage
from worker.kv import SlotLayout, kept_as
from worker.model import Model
from worker.rows import Row
from worker.weights import Weights, open_weights

_BEFORE, _SEQUENCES, _PROMPT, _CHUNK = 256, (1, 8, 32), 512, 256
_PASSES = (*map(str, _SEQUENCES), "prompt")


def main() -> int:
    flags = _flags()
    torch.set_num_threads(flags.threads)
    weights = open_weights(find_model(flags.model).path)
    figures: dict[str, Any] = {"ms": measure(weights, flags.weights, flags.rounds)}
    figures |= {"model": flags.model, "threads": flags.threads, "torch": torch.__version__, "machine": machine()}
    publish("forward", figures, _as_text(figures["ms"]), as_json=flags.json)
    return 0


def measure(weights: Weights, kinds: Sequence[Storage], rounds: int) -> dict[str, dict[str, float]]:
    """Milliseconds of each pass by kind of matrices, by as many threads as torch has."""
    models = {kind: Model(weights, torch.float32, _PROMPT, kind) for kind in kinds}
    plain = models[kinds[0]].kv_shape
    shape = kept_as("auto", plain, computed_in_c=SlotLayout.computed_in_c(plain, torch.device("cpu")))
    layout = SlotLayout(shape, slots=max(_SEQUENCES), context=_PROMPT, blocks=1, block_size=16)
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    spent: dict[str, dict[str, list[float]]] = {kind: {name: [] for name in _PASSES} for kind in kinds}
    for _ in range(rounds):
        for kind, model in models.items():
            for name, work in _passes(model, layout).items():
                began = clock()
                work()
                spent[kind][name].append(1e3 * (clock() - began))
    return {kind: {name: round(median(times), 1) for name, times in of.items()} for kind, of in spent.items()}


def _passes(model: Model, layout: SlotLayout) -> dict[str, Callable[[], object]]:
    found: dict[str, Callable[[], object]] = {}
    for count in _SEQUENCES:
        rows = [Row(slot, _BEFORE, 1) for slot in range(count)]
        found[str(count)] = lambda rows=rows: model.forward([5] * len(rows), rows, layout)  # type: ignore[misc]
    chunks = [Row(0, start, _CHUNK) for start in range(0, _PROMPT, _CHUNK)]
    found["prompt"] = lambda: [model.forward([5] * _CHUNK, [chunk], layout) for chunk in chunks]
    return found


def _as_text(figures: dict[str, dict[str, float]]) -> str:
    return table(["weights (ms)", *_PASSES], [[kind, *times.values()] for kind, times in figures.items()])


def _kinds(text: str) -> list[str]:
    kinds = text.split(",")
    if not set(kinds) <= set(get_args(Storage)):
        raise argparse.ArgumentTypeError(f"{text!r}: of {', '.join(get_args(Storage))}, separated by commas")
    return kinds


def _flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.forward", description="A whole forward pass.")
    parser.add_argument("--model", default="smollm2", help="a model file, or `smollm2`")
    parser.add_argument("--weights", type=_kinds, default="file-a8,float16,float32", help="kinds, separated by commas")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
