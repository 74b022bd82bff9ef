"""python -m bench.index [--workers 16,64,256] [--blocks 1000000] [--churn EVENTS] [--json]"""

import argparse
import json
from dataclasses import asdict
from typing import Any, Final

from bench import report
from bench.index import measure
from bench.index.fleet import SyntheticFleet
from bench.index.peer import DynamoTree, dynamo
from cacheplane.index import PrefixIndex

ROWS: Final = {
    "find_2000_us": "look-up of 2,000 blocks, us",
    "find_256_us": "look-up of 256 blocks, us",
    "stored_per_s": "stored, blocks/s",
    "removed_per_s": "removed, blocks/s",
    "apply_blocks_per_s": "applied, half of each, blocks/s",
    "bytes_per_block": "memory, bytes/block",
    "hash_32k_ms": "hashing 32k tokens, ms",
    "hash_32k_list_ms": "the same from a list, ms",
}


def main() -> None:
    options = _options()
    peer = dynamo()
    figures: dict[str, Any] = {"machine": report.machine(), "blocks": options.blocks}
    for workers in options.workers:
        figures[f"workers_{workers}"] = _fleet(workers, options.blocks, options.churn, peer)
    first = figures[f"workers_{options.workers[0]}"]
    figures |= first
    if peer is not None:
        figures["dynamo_version"] = peer.version
    report.save("index", figures)
    print(_table(figures, options.workers))
    print(f"stored from the bytes of messages, as the peer's figure is: {_short(first['wire_stored_per_s'])} blocks/s")
    print(f"longest single event while the table grew: {first['growth_stall_ms']:.2f} ms; all figures are CPU time")
    if options.json:
        print(json.dumps(figures, indent=2))


def _fleet(workers: int, blocks: int, churned: int, peer: DynamoTree | None) -> dict[str, Any]:
    """All figures of one size of fleet; the peer's beside ours, with a prefix."""
    fleet, index = SyntheticFleet(workers, blocks), PrefixIndex()
    figures: dict[str, Any] = {"blocks": fleet.blocks, **_told(fleet, index, peer)}
    for length in (2_000, 256):
        ours, theirs = measure.finds(fleet, index, peer, length)
        figures |= {f"find_{length}_us": ours.p50, f"find_{length}_p99_us": ours.p99}
        if theirs is not None:
            figures |= {f"dynamo_find_{length}_us": theirs.p50, f"dynamo_find_{length}_p99_us": theirs.p99}
    hashing = measure.hashing(peer)
    figures |= {"hash_32k_ms": hashing.words, "hash_32k_list_ms": hashing.listed}
    if hashing.theirs is not None:
        figures |= {"dynamo_hash_32k_ms": hashing.theirs, "dynamo_hash_32k_list_ms": hashing.theirs}
    figures |= _untold(fleet, index, peer)
    for side in ("", "dynamo_"):
        if f"{side}removed_per_s" in figures:
            figures[f"{side}apply_blocks_per_s"] = _both(figures, side)
    if churned:
        measure.told(index, fleet, [event for session in fleet.sessions for event in session.stored()])
        figures["churn"] = asdict(measure.churn(fleet, index, churned))
    return figures


def _told(fleet: SyntheticFleet, index: PrefixIndex, peer: DynamoTree | None) -> dict[str, Any]:
    """Everything that the fleet holds is stored."""
    events = [event for session in fleet.sessions for event in session.stored()]
    rate, theirs = measure.told(index, fleet, events, peer)
    figures = {
        "pairs": len(index),
        "stored_per_s": rate.per_second,
        "wire_stored_per_s": measure.wire_rate(fleet, events[:2_000]),
        "growth_stall_ms": rate.longest_ms,
        "bytes_per_block": rate.grown / fleet.blocks,
    }
    if theirs is not None:
        figures["dynamo_stored_per_s"] = theirs.per_second
        figures["dynamo_bytes_per_block"] = theirs.grown / fleet.blocks
    return figures


def _both(figures: dict[str, Any], side: str) -> float:
    """Blocks per second where as many are removed as stored."""
    return float(2 / (1 / figures[f"{side}stored_per_s"] + 1 / figures[f"{side}removed_per_s"]))


def _untold(fleet: SyntheticFleet, index: PrefixIndex, peer: DynamoTree | None) -> dict[str, Any]:
    """And everything but the templates is removed."""
    events = [event for session in fleet.sessions for event in session.removed()]
    ours, theirs = measure.told(index, fleet, events, peer)
    figures = {"removed_per_s": ours.per_second}
    if peer is not None and theirs is not None:
        figures["dynamo_removed_per_s"] = theirs.per_second
        for worker in range(fleet.workers):
            peer.forget(worker)
    return figures


def _table(figures: dict[str, Any], fleets: list[int]) -> str:
    rows = []
    for key, name in ROWS.items():
        for workers in fleets:
            ours, theirs = figures[f"workers_{workers}"][key], figures[f"workers_{workers}"].get(f"dynamo_{key}")
            beside = ["-", "-"] if theirs is None else [_short(theirs), f"{ours / theirs:.2f}"]
            rows.append([f"{name}, {workers} workers", _short(ours), *beside])
    return report.table(["", "ours", "dynamo", "ours / dynamo"], rows)


def _short(value: float) -> str:
    return f"{value / 1e6:.2f} M" if value >= 1e6 else f"{value:.3g}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.index", description=__doc__)
    parser.add_argument("--workers", type=lambda text: [int(part) for part in text.split(",")], default=[16, 64, 256])
    parser.add_argument("--blocks", type=int, default=1_000_000)
    parser.add_argument("--churn", type=int, default=0, help="blocks stored and removed in the churn test")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
