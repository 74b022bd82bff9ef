"""Placement on real workers: ours beside round robin and longest overlap, on the same agent sessions.

    python -m bench.placement [--sessions FILE] [--count 8] [--turns 5] [--concurrency 4] [--json]

Each policy gets a fresh stack of CPU workers. `imbalance` is the prompt tokens that the busiest worker computed, over
the mean; times are medians, and ratios are against round robin. All sessions declare the same tools.
"""

import argparse
import asyncio
import sys
from pathlib import Path
from typing import Any, Final

from bench.report import machine, publish, say, table
from bench.sessions import replay
from bench.stack import Stack

POLICIES: Final = ("cost", "longest-overlap", "round-robin")
_COLUMNS: Final = ("ttft_cold_ms", "ttft_warm_ms", "hit_rate", "imbalance", "seconds")


def main() -> int:
    flags = _flags()
    figures = asyncio.run(_measure(flags))
    publish("placement", figures, _as_table(figures["policies"]), as_json=flags.json)
    return 0


async def _measure(flags: argparse.Namespace) -> dict[str, Any]:
    policies: dict[str, Any] = {}
    for policy in flags.policies:
        say(f"starting {flags.workers} workers with placement {policy}")
        with Stack(workers=flags.workers, placement=policy) as stack:
            found = await replay(stack.url, stack.keys["SALTWAY_KEY_ACME"], flags)
        policies[policy] = found | {"imbalance": imbalance(found["computed_tokens"], flags.workers)}
    names = ("workers", "count", "turns", "concurrency", "tools", "max_tokens")
    conditions = {name: getattr(flags, name) for name in names} | {"sessions": str(flags.sessions or "made up")}
    return {"policies": policies, "conditions": conditions | {"machine": machine()}}


def imbalance(computed: dict[str, int], workers: int) -> float:
    """The busiest worker's prompt tokens over the mean of all; workers that were never used count too."""
    total = sum(computed.values())
    return round(max(computed.values()) * workers / total, 3) if total else 1.0


def _as_table(policies: dict[str, Any]) -> str:
    rows = [[name, *(found[column] for column in _COLUMNS)] for name, found in policies.items()]
    if {"cost", "round-robin"} <= policies.keys():
        ours, base = policies["cost"], policies["round-robin"]
        rows.append(["cost / round-robin", *(_ratio(ours[column], base[column]) for column in _COLUMNS)])
    return table(["placement", *_COLUMNS], rows)


def _ratio(ours: float, base: float) -> str:
    return f"{ours / base:.2f}" if base else "-"


def _flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.placement", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sessions", type=Path, help="recorded sessions (JSON lines, .gz or not); made up by default")
    parser.add_argument("--policies", nargs="+", default=list(POLICIES), choices=[*POLICIES, "load-only"])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--count", type=int, default=8, help="sessions to play")
    parser.add_argument("--turns", type=int, default=5, help="turns of each session at most")
    parser.add_argument("--tools", type=int, default=8, help="tools of a made-up session")
    parser.add_argument("--concurrency", type=int, default=4, help="sessions at once")
    parser.add_argument("--max-tokens", type=int, default=8, help="tokens generated in each turn at most")
    parser.add_argument("--context", type=int, default=8192, help="the model's context, to pass over longer sessions")
    parser.add_argument("--json", action="store_true", help="print one JSON object last")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
