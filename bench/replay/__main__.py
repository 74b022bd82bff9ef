"""Plays a public trace against simulated workers and compares placement policies.

    python -m bench.replay conversation_trace.jsonl.gz --workers 8 --blocks 10000 [--policy saltway] [--json]

Traces: Mooncake JSON lines (.jsonl, .jsonl.gz) or an archive of coding-agent sessions (.tar.gz).
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import msgspec

from bench.replay.engine import Machine
from bench.replay.outcome import Outcome
from bench.replay.plot import svg
from bench.replay.policies import POLICIES
from bench.replay.simulation import Simulation
from bench.replay.trace import Trace, load
from bench.report import machine, say, table


def main() -> int:
    flags = _flags()
    trace = load(flags.trace)
    simulated = Machine(
        blocks=flags.blocks, host_blocks=flags.host_blocks, prefill_tps=flags.prefill_tps, host_tps=flags.host_tps
    )
    outcomes = _outcomes(trace, simulated, flags)
    bound = trace.bound
    out = sys.stderr if flags.json else sys.stdout
    print(f"{trace.name}: {len(trace.requests)} requests, {trace.blocks} blocks, bound {bound:.4f}", file=out)
    print(_as_table(outcomes), file=out)
    if flags.plot:
        title = f"{trace.name}, {flags.workers} workers of {flags.blocks} blocks"
        flags.plot.write_text(svg(title, {_label(name): outcome for name, outcome in outcomes.items()}, bound))
    if flags.json:
        print(json.dumps(_as_json(trace, simulated, outcomes, flags) | {"bound": round(bound, 4)}))
    return 0


def _outcomes(trace: Trace, simulated: Machine, flags: argparse.Namespace) -> dict[str, Outcome]:
    chosen = [flags.policy] if flags.policy else list(POLICIES)
    outcomes = {}
    for name in chosen:
        say(name)
        policy = POLICIES[name](flags.workers)
        outcomes[name] = Simulation(trace, simulated, flags.workers, policy).run()
    return outcomes


def _as_table(outcomes: dict[str, Outcome]) -> str:
    header = ["policy", "hit rate", "imbalance", "TTFT p50 ms", "p99 ms", "mean ms", "decision p50 us", "p99 us"]
    rows = [
        [
            _label(name),
            f"{outcome.hit_rate:.4f}",
            f"{outcome.imbalance:.3f}",
            f"{outcome.ttft_p50_ms:,.0f}",
            f"{outcome.ttft_p99_ms:,.0f}",
            f"{outcome.ttft_mean_ms:,.0f}",
            f"{outcome.decision_p50_us:.0f}",
            f"{outcome.decision_p99_us:.0f}",
        ]
        for name, outcome in outcomes.items()
    ]
    return table(header, rows)


def _as_json(
    trace: Trace, simulated: Machine, outcomes: dict[str, Outcome], flags: argparse.Namespace
) -> dict[str, Any]:
    conditions = {"trace": trace.name, "requests": len(trace.requests), "workers": flags.workers}
    conditions |= {"simulated": msgspec.structs.asdict(simulated), "machine": machine()}
    return {"policies": {name: _rounded(outcome) for name, outcome in outcomes.items()}, "conditions": conditions}


def _rounded(outcome: Outcome) -> dict[str, Any]:
    figures = msgspec.structs.asdict(outcome)
    return {name: round(value, 4) if isinstance(value, float) else value for name, value in figures.items()}


def _label(name: str) -> str:
    return POLICIES[name].name


def _flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.replay", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("trace", type=Path)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--blocks", type=int, default=10_000, help="of each worker's device, in blocks of the trace")
    parser.add_argument("--host-blocks", type=int, default=0, help="of each worker's host tier")
    parser.add_argument("--prefill-tps", type=float, default=8_000.0, help="tokens a second and worker")
    parser.add_argument("--host-tps", type=float, default=100_000.0)
    parser.add_argument("--policy", choices=list(POLICIES), help="one instead of all")
    parser.add_argument("--plot", type=Path, help="write hit rate against imbalance as SVG")
    parser.add_argument("--json", action="store_true", help="print one JSON object last")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
