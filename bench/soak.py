"""Half an hour of mixed traffic on small tiers, and whether anything grew.

    python -m bench.soak [--minutes 30] [--json]

Two tenants; sessions that grow, sessions that are left in the middle of a stream, schemas, tools, bad requests. Every
few seconds it is noted what each process holds. At the end the stack must be idle with its books balanced, and neither
memory nor threads nor files may have grown from the middle of the run to its end. Exit code 1 if one has.
"""

import argparse
import asyncio
import json
import random
import sys
import time
from collections import Counter
from statistics import median
from typing import Any

import aiohttp
import psutil

from bench.agents import made_up
from bench.client import ChatClient, RequestError
from bench.report import machine, save, table
from bench.stack import Stack
from cacheplane.wire import decode_snapshot

_SAMPLE_SECONDS = 5.0
_CLIENTS = 4
_GROWTH = {"rss_mib": 1.10, "threads": 1.0, "descriptors": 1.05, "kv_files": 1.05}  # of the median at mid-run
_SLACK = {"rss_mib": 64, "threads": 2, "descriptors": 8, "kv_files": 8}

Sample = dict[str, float]


def main() -> int:
    flags = _flags()
    with Stack(workers=2, host_cache_mib="48", disk_cache_mib="96") as stack:
        figures = asyncio.run(_soak(stack, flags.minutes * 60))
        exit_code = stack.stop()
    figures |= {"minutes": flags.minutes, "exit_code": exit_code, "machine": machine()}
    figures["passed"] = not figures["grew"] and not figures["leaks"] and exit_code == 0
    print(_as_text(figures), file=sys.stderr if flags.json else sys.stdout)
    print(f"saved as {save('soak', figures)}", file=sys.stderr)
    if flags.json:
        print(json.dumps(figures))
    return 0 if figures["passed"] else 1


async def _soak(stack: Stack, seconds: float) -> dict[str, Any]:
    samples: list[dict[str, Sample]] = []
    outcomes: Counter[str] = Counter()
    end = time.monotonic() + seconds

    async def watch() -> None:
        while time.monotonic() < end:
            samples.append(_sample(stack))
            await asyncio.sleep(_SAMPLE_SECONDS)

    clients = [_client(stack, number, end, outcomes) for number in range(_CLIENTS)]
    await asyncio.gather(watch(), *clients)
    await asyncio.sleep(5)
    leaks = await _leaks(stack)
    return {"requests": dict(outcomes), "grew": _grew(samples), "leaks": leaks, "last": samples[-1]}


async def _client(stack: Stack, number: int, end: float, outcomes: "Counter[str]") -> None:
    """One agent after another, until the time is over."""
    draw = random.Random(number)
    key = stack.keys["SALTWAY_KEY_ACME" if number % 2 else "SALTWAY_KEY_GLOBEX"]
    async with ChatClient(stack.url, key) as client:
        while time.monotonic() < end:
            session = made_up(draw.randrange(12), turns=4, tools=draw.choice([0, 2, 4]))
            for turn in range(draw.randrange(1, 5)):
                if time.monotonic() < end:
                    outcomes[await _request(client, draw, session.request(turn), session.tools)] += 1


async def _request(client: ChatClient, draw: random.Random, messages: list[Any], tools: list[Any]) -> str:
    body: dict[str, Any] = {"model": "smollm2", "messages": messages, "max_tokens": draw.randrange(1, 24)}
    kind = draw.choice(["plain", "plain", "tools", "json", "left", "bad"])
    if tools:
        body["tools"] = tools
    if kind == "tools" and tools:
        body["tool_choice"] = "required"
    if kind == "json":
        body["response_format"] = {"type": "json_object"}
    if kind == "bad":
        body["temperature"] = 9
    if draw.random() < 0.3:
        body["saltway"] = {"retention": {"priority": draw.randrange(101), "ttl_seconds": 20, "session": "soak"}}
    try:
        async with asyncio.timeout(draw.uniform(0.1, 1.5) if kind == "left" else 120):
            await client.chat(**body)
    except RequestError as error:
        return f"refused {error.code}"
    except TimeoutError:
        return "left"
    return "served"


def _sample(stack: Stack) -> dict[str, Sample]:
    """What each process holds now."""
    found = {}
    for name in ("w0", "w1", "gateway"):
        process = psutil.Process(stack.worker_pid(name))
        folder = stack.home / "kv" / name
        found[name] = {
            "rss_mib": process.memory_info().rss / 2**20,
            "threads": process.num_threads(),
            "descriptors": process.num_fds(),
            "kv_files": sum(1 for path in folder.rglob("*") if path.is_file()) if folder.exists() else 0,
        }
    return found


def _grew(samples: list[dict[str, Sample]]) -> list[str]:
    """What is higher in the last sixth of the run than around its middle, beyond noise."""
    middle, last = samples[len(samples) // 2 : len(samples) * 2 // 3], samples[len(samples) * 5 // 6 :]
    grown = []
    for name in samples[0]:
        for what, factor in _GROWTH.items():
            before, after = (median(sample[name][what] for sample in part) for part in (middle, last))
            if after > before * factor + _SLACK[what]:
                grown.append(f"{name} {what}: {before:.0f} -> {after:.0f}")
    return grown


async def _leaks(stack: Stack) -> list[str]:
    """Blocks, sequences and requests that are still held though nothing runs."""
    token = (stack.home / "worker.token").read_text().strip()
    found = []
    async with aiohttp.ClientSession(trust_env=False) as session:
        admin = {"Authorization": f"Bearer {stack.keys['SALTWAY_ADMIN_KEY']}"}
        async with session.get(f"{stack.url}/admin/api/workers", headers=admin) as reply:
            workers = (await reply.json())["workers"]
        async with session.get(f"{stack.url}/admin/api/live", headers=admin) as reply:
            found += [f"gateway still has {len(live)} requests" for live in [(await reply.json())["requests"]] if live]
        for row in workers:
            headers = {"Authorization": f"Bearer {token}"}
            async with session.get(f"{row['url']}/load", headers=headers) as reply:
                load = await reply.json()
            async with session.get(f"{row['url']}/kv/snapshot", headers=headers) as reply:
                blocks = decode_snapshot(await reply.read()).blocks
            on_device = sum(block.tier == 0 for block in blocks)
            if load["running"] or load["waiting"]:
                found.append(f"{row['id']} still runs {load['running']} and queues {load['waiting']}")
            if load["free_blocks"] + on_device != load["total_blocks"]:
                found.append(f"{row['id']} lost {load['total_blocks'] - load['free_blocks'] - on_device} blocks")
    return found


def _as_text(figures: dict[str, Any]) -> str:
    rows = [[name, *(round(value) for value in sample.values())] for name, sample in figures["last"].items()]
    head = f"{figures['minutes']} minutes, requests {figures['requests']}"
    tail = "passed" if figures["passed"] else f"FAILED: {figures['grew'] + figures['leaks']}"
    return "\n".join([head, table(["process", *_GROWTH], rows), tail])


def _flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description="Whether anything grows under traffic.")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--json", action="store_true", help="print one JSON object last")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
