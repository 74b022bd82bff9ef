"""What KV memory costs, how fast its tiers copy, and what they are worth.

    python -m bench.memory [--sessions FILE] [--blocks 1000000] [--json]

scheduler_share   time of scheduler and KV memory in a step, of the step, with 32 sequences decoding on the real model
engine_share      the same of all that is not the model's forward pass: tokens are chosen and told too
match_32k_ms      finding a prompt of 32,768 tokens that is wholly known, median, in the largest tree
bytes_per_block   memory for a block beyond its KV, at the size of the tree where it is most; leased_: under a lease
growth            both, and the cost of storing a block, as the tree grows to a million blocks (bench/growth.py)
host_gb_s         one block after another from host into a slot, beside the machine's own copy rate
disk_gb_s         files read back and checked into a slot, beside a plain read of as many bytes, from the page cache and
                  from the disk
cliff             coding-agent sessions on a pool that holds a third of them, by configuration (bench/cliff.py)
"""

import argparse
import os
import sys
import time
from array import array
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from bench.cliff import Rates, made_up_sessions, recorded_sessions, replay
from bench.engine_rig import EngineRig
from bench.growth import BLOCK, grown_apart
from bench.report import machine, publish, table
from cacheplane.identity import Namespace, Span
from cacheplane.wire import Tier
from worker.kv import KVLimits, KVMemory, KVShape, SlotLayout

_SPANS = [Span(0, Namespace(b"n" * 32))]


def main() -> int:
    flags = _flags()
    plain, leased = grown_apart(flags.blocks, leased=False), grown_apart(flags.blocks, leased=True)
    rig = EngineRig()
    shares = rig.shares()
    copies, token_bytes = copy_rates(rig.shape, flags.copies), rig.shape.bytes_per_token
    rates = Rates(rig.prefill_tps, copies["host_gb_s"] * 1e9 / token_bytes, copies["disk_gb_s"] * 1e9 / token_bytes)
    sessions = recorded_sessions(flags.sessions, flags.count) if flags.sessions else made_up_sessions(flags.count)
    figures: dict[str, Any] = {
        "scheduler_share": shares.scheduler,
        "engine_share": shares.engine,
        "match_32k_ms": plain[-1]["match_ms"],
        "bytes_per_block": max(row["bytes_per_block"] for row in plain),
        "leased_bytes_per_block": max(row["bytes_per_block"] for row in leased),
        "growth": plain,
        "growth_leased": leased,
        **copies,
        "cliff": replay(sessions, rates),
        "prefill_tps": round(rates.prefill, 1),
        "kv": {"kind": rig.shape.kind, "bytes_per_token": token_bytes},
        "machine": machine(),
    }
    publish("memory", figures, _as_text(figures), as_json=flags.json)
    return 0


def copy_rates(shape: KVShape, blocks: int) -> dict[str, float]:
    """GB/s of the tiers' own path into a slot, and of plain copies and reads of the same bytes on this machine."""
    size = blocks * BLOCK
    tokens = array("I", range(size + 1))
    with TemporaryDirectory() as folder:
        limits = KVLimits((blocks + 4) * shape.bytes_per_token * BLOCK, 2 << 30, Path(folder), "bench")
        measured: dict[str, float] = {}
        for tier in (Tier.HOST, Tier.DISK):
            slots = SlotLayout(shape, slots=1, context=size + BLOCK, blocks=blocks, block_size=BLOCK)
            only = limits if tier == Tier.HOST else KVLimits(0, limits.disk_bytes, limits.folder, "bench")
            memory = KVMemory(slots, only)
            for pushed in (0, 1, 0, 1, 0):
                _store(memory, array("I", (token + pushed * 1_000_000 for token in tokens)))
            measured[f"{tier.name.lower()}_gb_s"] = round(memory.reuse.load_tps(tier) * shape.bytes_per_token / 1e9, 3)
            memory.shut()
        return measured | _machine_rates(Path(folder), blocks * BLOCK * shape.bytes_per_token)


def _machine_rates(folder: Path, size: int) -> dict[str, float]:
    """What one thread of this machine copies and reads at best, over as many bytes; the disk's from the disk itself."""
    source, target, path = np.ones(size, np.uint8), np.ones(size, np.uint8), folder / "plain"
    path.write_bytes(source.tobytes())
    return {
        "machine_memory_gb_s": _gb_s(size, lambda: np.copyto(target, source)),
        "machine_cache_gb_s": _gb_s(size, lambda: _read(path, target)),
        "machine_disk_gb_s": _gb_s(size, lambda: _read(path, target), before=lambda: _drop_cached(path)),
    }


def _gb_s(size: int, copy: Callable[[], None], before: Callable[[], None] = lambda: None) -> float:
    """The best of five, in 10**9 bytes a second."""
    seconds = []
    for _ in range(5):
        before()
        began = time.perf_counter()
        copy()
        seconds.append(time.perf_counter() - began)
    return round(size / min(seconds) / 1e9, 3)


def _read(path: Path, target: "np.ndarray[Any, np.dtype[np.uint8]]") -> None:
    with path.open("rb", buffering=0) as file:
        file.readinto(target.data)


def _drop_cached(path: Path) -> None:
    """Leaves the system's page cache without this file, so that the next read comes from the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


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
        f"scheduler share of a step at 32   {100 * figures['scheduler_share']:.2f} %; of the whole engine "
        f"{100 * figures['engine_share']:.2f} %",
        f"match of 32,768 tokens            {figures['match_32k_ms']} ms",
        f"bytes per block beyond the KV     {figures['bytes_per_block']}; leased {figures['leased_bytes_per_block']}",
        f"host into a slot                  {figures['host_gb_s']} GB/s; plain copy {figures['machine_memory_gb_s']}",
        f"disk into a slot                  {figures['disk_gb_s']} GB/s; plain read {figures['machine_cache_gb_s']} "
        f"from the page cache, {figures['machine_disk_gb_s']} from the disk",
        "",
        table(list(figures["growth"][0]), [list(row.values()) for row in figures["growth"]]),
        "",
        "under leases",
        table(list(figures["growth_leased"][0]), [list(row.values()) for row in figures["growth_leased"]]),
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
