"""What KV as codes of 8 bits costs in time, beside KV as it is computed.

    python -m bench.kvcodes [--tokens 2048] [--json]

kept_ms      blocks of so many tokens copied out of a slot, and rounded to codes
brought_ms   the same blocks copied into another slot, and widened
step_ms      a step of the packaged model over slots, float32, by rows: one token each behind 255 others

CPU time of one thread, medians; the kinds of KV take turns, so that a busy machine is unfair to none.
"""

import argparse
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch

from bench.report import machine, publish, table
from gateway.up.model import find_model
from kernels import KV_CODES, KVCodes
from worker.kv import KVShape, SlotLayout
from worker.kv.radix import NOWHERE
from worker.model import Model
from worker.rows import Row
from worker.weights import open_weights

_KINDS: tuple[KVCodes | None, ...] = (None, *KV_CODES)
_BLOCK, _BEFORE, _ROWS = 16, 255, (1, 8)


def main() -> int:
    flags = _flags()
    torch.set_num_threads(1)
    model = Model(open_weights(find_model("smollm2").path), torch.float32, storage="float16")
    figures: dict[str, Any] = {"tokens": flags.tokens, "copies": copies(model.kv_shape, flags.tokens)}
    figures |= {"step_ms": {str(rows): steps(model, rows) for rows in _ROWS}}
    figures |= {"torch": torch.__version__, "machine": machine()}
    publish("kvcodes", figures, _as_text(figures), as_json=flags.json)
    return 0


def copies(shape: KVShape, tokens: int) -> dict[str, dict[str, float]]:
    """By kind of KV; memory is touched before it is measured."""
    found: dict[str, dict[str, float]] = {}
    for kind in _KINDS:
        blocks = tokens // _BLOCK
        layout = SlotLayout(shape.coded(kind), slots=2, context=4 * tokens, blocks=blocks, block_size=_BLOCK)
        layout.keys[..., :tokens].normal_()
        layout.values[:, :, :, :tokens].normal_()
        stored = [layout.keep(0, index, NOWHERE) for index in range(blocks)]
        for block in stored:
            layout.pool.ready(block or 0)

        def keep(layout: SlotLayout = layout, blocks: int = blocks) -> None:
            for block in range(blocks):
                layout.pool.give_back(block)
            for index in range(blocks):
                layout.pool.ready(layout.keep(0, index, NOWHERE) or 0)

        def bring(layout: SlotLayout = layout, blocks: int = blocks) -> None:
            layout.bring_in(1, 0, range(blocks))

        kept, brought = median(_ms(keep) for _ in range(5)), median(_ms(bring) for _ in range(5))
        found[_name(kind)] = {"kept_ms": round(kept, 1), "brought_ms": round(brought, 1)}
    return found


def steps(model: Model, count: int) -> dict[str, float]:
    """By kind of KV."""
    layouts = {
        kind: SlotLayout(model.kv_shape.coded(kind), slots=count, context=512, blocks=1, block_size=_BLOCK)
        for kind in _KINDS
    }
    rows = [Row(slot, _BEFORE, 1) for slot in range(count)]
    spent: dict[KVCodes | None, list[float]] = {kind: [] for kind in _KINDS}
    for _ in range(15):
        for kind, layout in layouts.items():
            spent[kind].append(_ms(lambda layout=layout: model.forward([5] * count, rows, layout)))  # type: ignore[misc]
    return {_name(kind): round(median(times), 1) for kind, times in spent.items()}


def _ms(work: Callable[[], object]) -> float:
    began = time.thread_time()
    work()
    return 1e3 * (time.thread_time() - began)


def _name(kind: KVCodes | None) -> str:
    return kind or "float32"


def _as_text(figures: dict[str, Any]) -> str:
    rows = [
        [name, *copied.values(), *(figures["step_ms"][str(count)][name] for count in _ROWS)]
        for name, copied in figures["copies"].items()
    ]
    tokens = figures["tokens"]
    return table(
        ["KV", f"keep {tokens} (ms)", f"bring {tokens} in (ms)", *(f"step of {count} (ms)" for count in _ROWS)], rows
    )


def _flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.kvcodes", description="What KV in 8 bits costs in time.")
    parser.add_argument("--tokens", type=int, default=2048, help="of the prefix that is copied")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
