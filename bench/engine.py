"""The worker as an engine, through its HTTP surface, and peers with the same weights and threads beside it.

    python -m bench.engine [--threads 2] [--rounds 3] [--only decode_tps,prefill_tps] [--json]
                           [--peer vllm=URL] [--peer llamacpp=URL] [--peer transformers]

decode_tps        tokens a second of all replies together while all of them decode, by concurrency
prefill_tps       tokens of a prompt that nobody has seen, by its length, a second until the first token
ttft_warm_ms      to the first token of a prompt whose first 1,500 tokens were sent before
agent_session_s   ten turns with 20 tools, each answered by JSON arguments, by sessions at once
constraint_ratio  time per token of JSON by a schema, over that of free text behind like prompts: of a bare schema and
                  as our gateway puts it, and the same of a worker without drafts, since a small model repeats itself
ratio             of each figure to the peer's, always such that above 1 is better for us

Rounds of all engines are interleaved, and figures are medians over them. docs/benchmarks.md says how peers are started.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from statistics import median
from typing import Any

import torch
from tokenizers import Tokenizer

from bench.ceiling import ceiling
from bench.peers import Peer, Transformers, openai_server, own_worker
from bench.report import machine, publish, table
from bench.scenarios import Scenarios
from gateway.up.model import find_model
from worker.tokenizer import read_vocabulary
from worker.weights import open_weights

_LOWER_IS_BETTER = ("ttft_warm_ms", "agent_session_s", "constraint_ratio")
_US = "saltway"

Figures = dict[str, dict[str, float]]


def main() -> int:
    flags = _flags()
    figures = asyncio.run(_measure(flags))
    publish("engine", figures, _as_text(figures), as_json=flags.json)
    return 0


async def _measure(flags: argparse.Namespace) -> dict[str, Any]:
    path = find_model(flags.model).path
    weights = open_weights(path)
    tokenizer = Tokenizer.from_str(read_vocabulary(weights).json)
    rounds: dict[str, list[Figures]] = {}
    async with AsyncExitStack() as stack:
        flags_of_worker = ["--weights", flags.weights, "--chunk-tokens", str(flags.chunk_tokens), "--blocks", "8192"]
        ours = await stack.enter_async_context(own_worker(path, flags.threads, 32, *flags_of_worker))
        peers: dict[str, Peer] = {_US: ours}
        for name, _, url in (given.partition("=") for given in flags.peer):
            peers[name] = (
                await stack.enter_async_context(openai_server(url, tokenizer))
                if url
                else Transformers(weights, flags.threads)
            )
        scenarios, only = Scenarios(tokenizer), flags.only.split(",")
        without_drafts = [*flags_of_worker, "--speculation", "off"]
        plain = await stack.enter_async_context(own_worker(path, flags.threads, 2, *without_drafts))
        for _ in range(flags.rounds):
            for name, peer in peers.items():
                rounds.setdefault(name, []).append(await _round(scenarios, peer, only))
            if "constraint_ratio" in only:
                found = await scenarios.constraint_ratio(plain)
                rounds[_US][-1]["constraint_ratio"] |= {f"{name}, no drafts": ratio for name, ratio in found.items()}
    medians = {name: _medians(runs) for name, runs in rounds.items()}
    conditions = {"model": flags.model, "threads": flags.threads, "weights": flags.weights, "rounds": flags.rounds}
    return (ours_found := medians.pop(_US)) | {
        "peers": medians,
        "ratio": {name: _ratios(ours_found, theirs) for name, theirs in medians.items()},
        "ceiling": ceiling(),
        "conditions": conditions | {"chunk_tokens": flags.chunk_tokens, "torch": torch.__version__},
        "machine": machine(),
    }


async def _round(scenarios: Scenarios, peer: Peer, only: list[str]) -> Figures:
    free = not isinstance(peer, Transformers)
    parts: dict[str, Callable[[], Awaitable[dict[str, float]]]] = {
        "decode_tps": lambda: _by(scenarios.decode_tps, peer, (1, 8, 32)),
        "prefill_tps": lambda: _by(scenarios.prefill_tps, peer, (512, 2048)),
        "ttft_warm_ms": lambda: _by(scenarios.ttft_warm_ms, peer, (1500,)),
    }
    if free:
        parts["agent_session_s"] = lambda: _by(scenarios.agent_session_s, peer, (1, 8))
        parts["constraint_ratio"] = lambda: scenarios.constraint_ratio(peer)
    return {name: await part() for name, part in parts.items() if name in only}


async def _by(
    scenario: Callable[[Peer, int], Awaitable[float]], peer: Peer, sizes: tuple[int, ...]
) -> dict[str, float]:
    return {str(size): await scenario(peer, size) for size in sizes}


def _medians(runs: list[Figures]) -> Figures:
    first = runs[0]
    return {
        name: {size: round(median(run[name][size] for run in runs), 3) for size in sizes}
        for name, sizes in first.items()
    }


def _ratios(ours: Figures, theirs: Figures) -> Figures:
    return {
        name: {
            size: round(value / ours[name][size] if name in _LOWER_IS_BETTER else ours[name][size] / value, 2)
            for size, value in sizes.items()
        }
        for name, sizes in theirs.items()
    }


def _as_text(figures: dict[str, Any]) -> str:
    names = [_US, *figures["peers"]]
    rows = [
        [f"{name} {size}", value, *(figures["peers"][peer].get(name, {}).get(size, "-") for peer in names[1:])]
        for name in (*_SCENARIOS,)
        for size, value in figures.get(name, {}).items()
    ]
    ratios = "".join(f"\nratio to {name}: {json.dumps(ratio)}" for name, ratio in figures["ratio"].items())
    return table(["figure", *names], rows) + ratios + f"\nceiling of one thread: {figures['ceiling']}"


_SCENARIOS = ("decode_tps", "prefill_tps", "ttft_warm_ms", "agent_session_s", "constraint_ratio")


def _flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.engine", description="The worker as an engine, and peers.")
    parser.add_argument("--model", default="smollm2", help="a model file, or `smollm2`")
    parser.add_argument("--weights", default="auto", help="as the worker's flag")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--chunk-tokens", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default=",".join(_SCENARIOS), help="figures, separated by commas")
    parser.add_argument(
        "--peer", action="append", default=[], help="NAME=URL of an OpenAI-compatible server, or `transformers`"
    )
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
