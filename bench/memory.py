"""What KV memory costs, how fast its tiers copy, and what they are worth.

    python -m bench.memory [--sessions FILE] [--blocks 1000000] [--json]

scheduler_share   the engine's own time in a step, of the step, with 32 sequences decoding on the real model
match_32k_ms      finding a prompt of 32,768 tokens that is wholly known, median
bytes_per_block   memory for a block beyond its KV, as the number of blocks grows
host_gb_s         one block after another from host into a slot, beside the machine's own copy rate
disk_gb_s         files read back and checked into a slot, beside a plain read of as many bytes
cliff             coding-agent sessions on a pool that holds a third of them, by configuration (bench/cliff.py)
"""

import argparse
import json
import sys
import time
from array import array
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import psutil
import torch

from bench.cliff import Rates, made_up_sessions, recorded_sessions, replay
from bench.engine_rig import EngineRig
from bench.report import machine, save, table
from cacheplane.identity import Namespace, Span
from cacheplane.wire import Tier
from worker.kv import KVLimits, KVMemory, KVShape, SlotLayout

_SPANS = [Span(0, Namespace(b"n" * 32))]
_SMALL = KVShape(layers=1, kv_heads=1, head_dim=1, dtype=torch.float32)
_REAL = KVShape(layers=30, kv_heads=3, head_dim=64, dtype=torch.float32)
_BLOCK = 16
_PATH = 2048  # blocks of one prompt while the tree grows


def main() -> int:
    flags = _flags()
    rig = EngineRig()
    copies = copy_rates(flags.copies)
    rates = Rates(
        rig.prefill_tps,
        copies["host_gb_s"] * 1e9 / _REAL.bytes_per_token,
        copies["disk_gb_s"] * 1e9 / _REAL.bytes_per_token,
    )
    sessions = recorded_sessions(flags.sessions, flags.count) if flags.sessions else made_up_sessions(flags.count)
    figures: dict[str, Any] = {
        "scheduler_share": round(rig.scheduler_share(), 4),
        "match_32k_ms": round(match_ms(32_768), 3),
        "bytes_per_block": in_a_process_of_its_own(flags.blocks),
        **copies,
        "cliff": replay(sessions, rates),
        "prefill_tps": round(rates.prefill, 1),
        "machine": machine(),
    }
    print(_as_text(figures), file=sys.stderr if flags.json else sys.stdout)
    print(f"saved as {save('memory', figures)}", file=sys.stderr)
    if flags.json:
        print(json.dumps(figures))
    return 0


def match_ms(length: int) -> float:
    """Milliseconds to find a prompt of this length, all of whose full blocks are known."""
    memory = _memory(length // _BLOCK + 8, length + _BLOCK)
    tokens = array("I", range(length + 1))
    _store(memory, tokens)
    times = []
    for _ in range(30):
        began = time.perf_counter()
        known = memory.known(tokens, _SPANS)
        times.append((time.perf_counter() - began) * 1000)
        assert known == length // _BLOCK
    return median(times)


def in_a_process_of_its_own(most: int) -> dict[str, int]:
    """bytes_per_block where nothing else comes and goes."""
    with get_context("spawn").Pool(1) as pool:
        return pool.apply(bytes_per_block, (most,))


def bytes_per_block(most: int) -> dict[str, int]:
    """Resident memory that a block takes beyond its KV, when this many are stored."""
    process, grown = psutil.Process(), {}
    kv_bytes = _SMALL.bytes_per_token * _BLOCK
    memory = _memory(most, (_PATH + 1) * _BLOCK)
    _store(memory, array("I", range(most * _BLOCK, most * _BLOCK + _PATH * _BLOCK)))  # what is only allocated once
    before, stored = process.memory_info().rss, 0
    first = memory.pool.total - memory.pool.free
    for count in (50_000, 200_000, 900_000):
        if count > most:
            break
        while stored < count:
            base = stored * _BLOCK
            _store(memory, array("I", range(base, base + _PATH * _BLOCK)))
            stored += _PATH
        held = memory.pool.total - memory.pool.free - first
        grown[str(count)] = round((process.memory_info().rss - before) / held) - kv_bytes
    return grown


def copy_rates(blocks: int) -> dict[str, float]:
    """GB/s of the tiers' own path into a slot, and of plain copies and reads of the same bytes on this machine."""
    size = blocks * _BLOCK
    tokens = array("I", range(size + 1))
    with TemporaryDirectory() as folder:
        limits = KVLimits((blocks + 4) * _REAL.bytes_per_token * _BLOCK, 2 << 30, Path(folder), "bench")
        measured: dict[str, float] = {}
        for tier in (Tier.HOST, Tier.DISK):
            slots = SlotLayout(_REAL, slots=1, context=size + _BLOCK, blocks=blocks, block_size=_BLOCK)
            only = limits if tier == Tier.HOST else KVLimits(0, limits.disk_bytes, limits.folder, "bench")
            memory = KVMemory(slots, only)
            for pushed in (0, 1, 0, 1, 0):
                _store(memory, array("I", (token + pushed * 1_000_000 for token in tokens)))
            measured[f"{tier.name.lower()}_gb_s"] = round(memory.reuse.load_tps(tier) * _REAL.bytes_per_token / 1e9, 3)
            memory.shut()
        return measured | _machine_rates(Path(folder), blocks * _BLOCK * _REAL.bytes_per_token)


def _machine_rates(folder: Path, size: int) -> dict[str, float]:
    source, target = np.ones(size, np.uint8), np.zeros(size, np.uint8)
    began = time.perf_counter()
    target[:] = source
    memory_seconds = time.perf_counter() - began
    path = folder / "plain"
    path.write_bytes(source.tobytes())
    began = time.perf_counter()
    with path.open("rb") as file:
        file.readinto(target.data)
    disk_seconds = time.perf_counter() - began
    return {
        "machine_memory_gb_s": round(size / memory_seconds / 1e9, 3),
        "machine_disk_gb_s": round(size / disk_seconds / 1e9, 3),
    }


def _memory(blocks: int, context: int) -> KVMemory:
    slots = SlotLayout(_SMALL, slots=1, context=context, blocks=blocks, block_size=_BLOCK)
    return KVMemory(slots)


def _store(memory: KVMemory, tokens: "array[int]") -> None:
    """One sequence that computes all of its tokens."""
    holding = memory.open(tokens, _SPANS)
    assert holding is not None
    while holding.loading:
        time.sleep(0.0002)  # the loader needs the interpreter too
        memory.poll()
    memory.extend(holding, tokens, len(tokens))
    memory.close(holding)
    memory.poll()
    memory.take_events()


def _as_text(figures: dict[str, Any]) -> str:
    rows = [list(row.values()) for row in figures["cliff"]]
    head = [
        f"scheduler share of a step at 32   {100 * figures['scheduler_share']:.2f} %",
        f"match of 32,768 tokens            {figures['match_32k_ms']} ms",
        f"bytes per block beyond the KV     {figures['bytes_per_block']}",
        f"host into a slot                  {figures['host_gb_s']} GB/s; plain copy {figures['machine_memory_gb_s']}",
        f"disk into a slot                  {figures['disk_gb_s']} GB/s; plain read {figures['machine_disk_gb_s']}",
        "",
    ]
    return "\n".join(head) + table(list(figures["cliff"][0]), rows)


def _flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.memory", description="What KV memory costs and is worth.")
    parser.add_argument("--sessions", type=Path, help="archive of coding-agent sessions (.tar.gz); made up by default")
    parser.add_argument("--count", type=int, default=12, help="sessions of it")
    parser.add_argument("--blocks", type=int, default=1_000_000, help="most blocks when memory per block is measured")
    parser.add_argument("--copies", type=int, default=128, help="blocks copied to measure the tiers")
    parser.add_argument("--json", action="store_true", help="print one JSON object last")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
