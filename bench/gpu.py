"""Whether the worker's CUDA path computes what the CPU does, and how long it takes there.

    python -m bench.gpu [--model FILE] [--json]       or: make gpu-check

agreement         of the device's logits with those of the CPU in float32, which keeps weights as the same codes where
                  there are any: the error's norm, of theirs. Allowed are 1e-4 in float32 and 0.03 in bfloat16;
                  0.15 with fp8 and 0.08 with w8a8, since activations in bfloat16 round to other codes now and then
                  (on a CPU the packaged model measures 0.009 in bfloat16, 0.039 with fp8 and 0.016 with w8a8)
products          error and microseconds of single matrices (bench/products.py)
tiers_keep_bits   blocks that went to host memory and came back are the same bit by bit
kv                error, bits and steps with KV as codes of 8 bits (`--kv-dtype`) beside weights in bfloat16; the CPU
                  has such codes too, but a number on the edge of two may get either: allowed are 0.04 with int8 and
                  0.05 with fp8 (on a CPU the packaged model measures 0.014 and 0.018)
steps             milliseconds of a forward pass, medians, by what matrices are kept as: a prompt of 512 tokens in one
                  chunk, and decoding behind so many tokens of 1, 8 and 32 sequences

All but float32 has activations and KV in bfloat16. fp8 is left out on a card that has none; w8a8 is what int8 is there.

Exit code: 0 all agree, 1 something does not, 2 there is no CUDA device.
"""

import argparse
import json
import statistics
import sys
import time
from array import array
from typing import Any

import torch
from torch import Tensor

from bench import products
from bench.report import machine, table
from cacheplane.identity import Namespace, Span
from gateway.up.model import find_model
from kernels import KV_CODES, KVCodes, Storage, multiplies_float8
from worker.config import ConfigError
from worker.device import device_of
from worker.kv import KVLimits, KVMemory, PagedLayout
from worker.kv.layout import CPU
from worker.model import Model
from worker.rows import Row
from worker.weights import Weights, open_weights

ALLOWED: dict[Storage, float] = {"float32": 1e-4, "bfloat16": 0.03, "fp8": 0.15, "w8a8": 0.08}
KV_ALLOWED: dict[KVCodes, float] = {"int8": 0.04, "fp8": 0.05}
_BLOCK = 16
_CONTEXT = 1024
_UNTIMED, _TIMED = 3, 10  # forward passes; the first ones choose kernels
_SPANS = [Span(0, Namespace(b"g" * 32))]
_STEPS = [[Row(0, 0, 512)], *([Row(slot, 512, 1) for slot in range(count)] for count in (1, 8, 32))]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.gpu", description="The CUDA path beside the CPU's.")
    parser.add_argument("--model", default="smollm2", help="a GGUF file, a Hugging Face folder, or the packaged model")
    parser.add_argument("--json", action="store_true", help="print one JSON object last")
    flags = parser.parse_args()
    try:
        device = device_of("cuda")
    except ConfigError:
        print("gpu-check needs a CUDA device and a torch built for it, and there is none here", file=sys.stderr)
        return 2
    figures = measured(open_weights(find_model(flags.model).path), device)
    figures |= {"card": torch.cuda.get_device_name(device), "torch": torch.__version__, "machine": machine()}
    print(_as_text(figures), file=sys.stderr if flags.json else sys.stdout)
    if flags.json:
        print(json.dumps(figures))
    return 0 if figures["agrees"] else 1


def measured(weights: Weights, device: torch.device) -> dict[str, Any]:
    """All figures."""
    errors, steps = {}, {}
    for storage in _storages(device):
        model = Model(weights, _dtype(storage), _CONTEXT, storage, device=device)
        errors[storage] = _error(model, weights, storage)
        steps[storage] = _times(model)
    matrices = products.measured([storage for storage in errors if storage != "float32"], device)
    kept = keeps_bits(model)
    kv = {codes: _of_codes(weights, device, codes) for codes in KV_CODES}
    close = all(errors[storage] <= ALLOWED[storage] for storage in errors)
    close &= all(one["error"] <= KV_ALLOWED[codes] and one["tiers_keep_bits"] for codes, one in kv.items())
    right = all(one["error"] <= products.ALLOWED for found in matrices.values() for one in found.values())
    return {
        "agrees": kept and close and right,
        "agreement": errors,
        "tiers_keep_bits": kept,
        "kv": kv,
        "products": matrices,
        "steps": steps,
    }


def _of_codes(weights: Weights, device: torch.device, codes: KVCodes) -> dict[str, Any]:
    """With KV as these codes."""
    model = Model(weights, torch.bfloat16, _CONTEXT, "bfloat16", device=device)
    exact = _logits(Model(weights, torch.float32, _CONTEXT, "float32"), codes)
    error = float((_logits(model, codes) - exact).norm() / exact.norm())
    return {"error": error, "tiers_keep_bits": keeps_bits(model, codes), "steps": _times(model, codes)}


def _times(model: Model, codes: KVCodes | None = None) -> dict[str, float]:
    return {f"{len(rows)} of {rows[0].count}": _ms(model, rows, codes) for rows in _STEPS}


def _storages(device: torch.device) -> list[Storage]:
    return [storage for storage in ALLOWED if storage != "fp8" or multiplies_float8(device)]


def _dtype(storage: Storage) -> torch.dtype:
    return torch.float32 if storage == "float32" else torch.bfloat16


def _error(model: Model, weights: Weights, storage: Storage) -> float:
    coded: Storage = "float32" if storage == "bfloat16" else storage
    exact = _logits(Model(weights, torch.float32, _CONTEXT, coded))
    return float((_logits(model) - exact).norm() / exact.norm())


def keeps_bits(model: Model, codes: KVCodes | None = None) -> bool:
    """Pushes a prompt's blocks out of a small pool, by other prompts, and asks for them again."""
    layout = _layout(model, 1, 6, codes)
    memory = KVMemory(layout, KVLimits(host_bytes=16 * _BLOCK * layout.shape.bytes_per_token))
    ours, *others = [array("I", (5 + at + number for at in range(4 * _BLOCK + 1))) for number in range(3)]
    _, before = _served(model, memory, ours)
    for other in others:
        _served(model, memory, other)
    from_host, after = _served(model, memory, ours)
    memory.shut()
    same = all(
        torch.equal(one.view(torch.uint8), two.view(torch.uint8)) for one, two in zip(before, after, strict=True)
    )
    return same and from_host == 4 * _BLOCK


def _served(model: Model, memory: KVMemory, tokens: "array[int]") -> tuple[int, list[Tensor]]:
    """One sequence; how many of its tokens came from host, and its four whole blocks as they are on the device."""
    holding, layout = memory.open(tokens, _SPANS), memory.layout
    assert holding is not None
    assert isinstance(layout, PagedLayout)
    while holding.loading:
        time.sleep(0.0002)
        memory.poll()
    start = holding.reused
    assert memory.prepare(holding, start, len(tokens))
    model.forward(tokens[start:].tolist(), [Row(holding.slot, start, len(tokens) - start)], layout)
    stored = map(layout.store.block, layout.table(holding.slot)[:4])
    parts = [part.to(CPU, copy=True) for block in stored for part in block]
    memory.extend(holding, tokens, len(tokens))
    memory.close(holding)
    memory.poll()
    return holding.cached.host, parts


def _logits(model: Model, codes: KVCodes | None = None) -> Tensor:
    """Of a prompt in one chunk and of 8 tokens after it, one by one."""
    layout, prompt = _layout(model, 1, 8, codes, taken=True), 7 * _BLOCK
    draw = torch.Generator().manual_seed(0)
    tokens = torch.randint(model.config.vocabulary, (prompt + 8,), generator=draw).tolist()
    rows = [Row(0, 0, prompt, prompt), *(Row(0, prompt + at, 1) for at in range(8))]
    return torch.cat([model.forward(tokens[row.start :][: row.count], [row], layout).cpu() for row in rows])


def _ms(model: Model, rows: list[Row], codes: KVCodes | None) -> float:
    layout = _layout(model, len(rows), _CONTEXT // _BLOCK, codes, taken=True)
    tokens, times = [5] * sum(row.count for row in rows), []
    for _ in range(_UNTIMED + _TIMED):
        began = time.perf_counter()
        model.forward(tokens, rows, layout)
        model.wait()
        times.append(time.perf_counter() - began)
    return round(1000 * statistics.median(times[_UNTIMED:]), 3)


def _layout(model: Model, slots: int, blocks: int, codes: KVCodes | None = None, *, taken: bool = False) -> PagedLayout:
    """So many blocks for each slot. Taken slots may be written from end to end; others are their user's affair."""
    sizes = {"slots": slots, "context": blocks * _BLOCK, "blocks": slots * blocks, "block_size": _BLOCK}
    layout = PagedLayout(model.kv_shape.coded(codes), **sizes, device=model.device)
    for slot in range(slots if taken else 0):
        layout.slots.take()
        assert layout.prepare(slot, 0, layout.context)
    return layout


def _as_text(figures: dict[str, Any]) -> str:
    verdict = "agrees with the CPU" if figures["agrees"] else "DOES NOT AGREE with the CPU"
    errors = [[name, f"{error:.1e}"] for name, error in figures["agreement"].items()]
    kept = [[name, f"{one['error']:.1e}", one["tiers_keep_bits"]] for name, one in figures["kv"].items()]
    timed = figures["steps"] | {f"KV in {name}": one["steps"] for name, one in figures["kv"].items()}
    steps = [[name, *times.values()] for name, times in timed.items()]
    matrices = [
        [shape, name, f"{one['error']:.1e}", *one["us"].values()]
        for shape, found in figures["products"].items()
        for name, one in found.items()
    ]
    tables = [
        table(["logits", "error"], errors),
        table(["matrix", "kept as", "error", *(f"us, {rows}" for rows in products.ROWS)], matrices),
        table(["KV", "error", "tiers keep bits"], kept),
        table(["ms, rows of tokens", *next(iter(figures["steps"].values()))], steps),
    ]
    head = f"{figures['card']}, torch {figures['torch']}: {verdict}; tiers keep bits: {figures['tiers_keep_bits']}"
    return "\n\n".join([head, *tables])


if __name__ == "__main__":
    sys.exit(main())
