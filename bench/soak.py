"""Half an hour of mixed traffic on small tiers, and whether anything grew.

    python -m bench.soak [--minutes 30] [--workers 2] [--nice 0] [--json]

Two tenants, one with a retention policy; sessions that grow, sessions that are left in the middle of a stream or ended,
schemas, tools, leases, bad requests.
Every few seconds it is noted what each process holds. At the end the stack must be idle with its books balanced, no
process may have been started anew, no request may have failed on our side, and neither memory nor threads nor tasks nor
files may have grown from the middle of the run to its end. Exit code 1 if one has.
"""

import argparse
import asyncio
import os
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
from bench.report import machine, publish, table
from bench.stack import Stack
from cacheplane.wire import decode_snapshot

_SAMPLE_SECONDS = 5.0
_CLIENTS = 4
_LEAST_SAMPLES = 12
# Of the median at mid-run. Tasks come and go with requests.
_GROWTH = {"rss_mib": 1.10, "threads": 1.0, "descriptors": 1.05, "kv_files": 1.05, "tasks": 1.10}
_SLACK = {"rss_mib": 64, "threads": 2, "descriptors": 8, "kv_files": 8, "tasks": 12}
_EXPECTED = ("served", "left", "ended", "refused out_of_range")  # how outcomes begin that are no fault of ours
# Full within minutes, so that blocks go through every tier in the first half of the run.
_SMALL = {"device_cache_blocks": "256", "host_cache_mib": "48", "disk_cache_mib": "96"}
_VERDICTS = ("failed", "restarted", "grew", "leaks")

Sample = dict[str, float]


def main() -> int:
    flags = _flags()
    os.nice(flags.nice)  # the stack inherits it
    names = [*(f"w{index}" for index in range(flags.workers)), "gateway"]
    with Stack(None, workers=flags.workers, **_SMALL) as stack:
        figures = asyncio.run(_soak(stack, names, flags.minutes * 60))
        exit_code = stack.stop()
    figures |= {"minutes": flags.minutes, "workers": flags.workers, "exit_code": exit_code, "machine": machine()}
    figures["passed"] = not any(figures[name] for name in _VERDICTS) and exit_code == 0
    publish("soak", figures, _as_text(figures), as_json=flags.json)
    return 0 if figures["passed"] else 1


async def _soak(stack: Stack, names: list[str], seconds: float) -> dict[str, Any]:
    pids = {name: stack.worker_pid(name) for name in names}
    samples: list[dict[str, Sample]] = []
    outcomes: Counter[str] = Counter()
    await _keep(stack)
    end = time.monotonic() + seconds

    async def watch() -> None:
        while time.monotonic() < end:
            samples.append({name: await _sample(stack, name) for name in names})
            await asyncio.sleep(_SAMPLE_SECONDS)

    clients = [_client(stack, number, end, outcomes) for number in range(_CLIENTS)]
    await asyncio.gather(watch(), *clients)
    await asyncio.sleep(5)
    leaks = await _leaks(stack)
    return {
        "requests": dict(outcomes),
        "failed": {name: count for name, count in outcomes.items() if not name.startswith(_EXPECTED)},
        "restarted": [name for name in names if stack.worker_pid(name) != pids[name]],
        "grew": grown(samples),
        "leaks": leaks,
        "last": samples[-1],
    }


async def _client(stack: Stack, number: int, end: float, outcomes: "Counter[str]") -> None:
    """One agent after another, until the time is over."""
    draw = random.Random(number)
    key = stack.keys["SALTWAY_KEY_ACME" if number % 2 else "SALTWAY_KEY_GLOBEX"]
    async with ChatClient(stack.url, key) as client:
        while time.monotonic() < end:
            desk = draw.choice([draw.randrange(12), draw.randrange(100_000)])
            session = made_up(desk, turns=4, tools=draw.choice([2, 4]))
            tools = session.tools if draw.random() < 0.7 else []
            for turn in range(draw.randrange(1, 5)):
                if time.monotonic() < end:
                    outcomes[await _request(client, draw, session.request(turn), tools)] += 1
            if draw.random() < 0.3:
                outcomes[await _end(client)] += 1


async def _end(client: ChatClient) -> str:
    try:
        await client.end("soak")
    except RequestError as error:
        return f"not ended {error.code}"
    return "ended"


async def _keep(stack: Stack) -> None:
    """One of the two tenants has a policy."""
    headers = {"Authorization": f"Bearer {stack.keys['SALTWAY_ADMIN_KEY']}"}
    policy = {"priority": 60, "ttl_seconds": 60}
    async with (
        aiohttp.ClientSession(trust_env=False, headers=headers) as session,
        session.put(f"{stack.url}/admin/api/tenants/globex/retention", json=policy) as reply,
    ):
        reply.raise_for_status()


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


async def _sample(stack: Stack, name: str) -> Sample:
    """What one process holds now."""
    process, folder = psutil.Process(stack.worker_pid(name)), stack.home / "kv" / name
    return {
        "rss_mib": process.memory_info().rss / 2**20,
        "threads": process.num_threads(),
        "descriptors": process.num_fds(),
        "kv_files": sum(1 for path in folder.rglob("*") if path.is_file()) if folder.exists() else 0,
        "tasks": await _tasks(stack, name),
    }


async def _tasks(stack: Stack, name: str) -> float:
    """asyncio tasks of a process, as it tells Prometheus."""
    url, key = stack.url, stack.keys["SALTWAY_ADMIN_KEY"]
    if name != "gateway":
        url = next(row["url"] for row in await _workers(stack) if row["id"] == name)
        key = (stack.home / "worker.token").read_text().strip()
    async with (
        aiohttp.ClientSession(trust_env=False, headers={"Authorization": f"Bearer {key}"}) as session,
        session.get(f"{url}/metrics") as reply,
    ):
        lines = (await reply.text()).splitlines()
    return next(
        float(line.split()[-1]) for line in lines if line.startswith(("saltway_tasks ", "saltway_worker_tasks "))
    )


async def _workers(stack: Stack) -> list[dict[str, Any]]:
    headers = {"Authorization": f"Bearer {stack.keys['SALTWAY_ADMIN_KEY']}"}
    async with (
        aiohttp.ClientSession(trust_env=False, headers=headers) as session,
        session.get(f"{stack.url}/admin/api/workers") as reply,
    ):
        workers: list[dict[str, Any]] = (await reply.json())["workers"]
    return workers


def grown(samples: list[dict[str, Sample]]) -> list[str]:
    """What is higher in the last sixth of the run than around its middle, beyond noise; ValueError for a short run."""
    if len(samples) < _LEAST_SAMPLES:
        raise ValueError(f"{len(samples)} samples are too few to tell growth from noise")
    middle, last = samples[len(samples) // 2 : len(samples) * 2 // 3], samples[len(samples) * 5 // 6 :]
    found = []
    for name in samples[0]:
        for what, factor in _GROWTH.items():
            before, after = (median(sample[name][what] for sample in part) for part in (middle, last))
            if after > before * factor + _SLACK[what]:
                found.append(f"{name} {what}: {before:.0f} -> {after:.0f}")
    return found


async def _leaks(stack: Stack) -> list[str]:
    """Blocks, sequences and requests that are still held though nothing runs."""
    token = (stack.home / "worker.token").read_text().strip()
    found = []
    async with aiohttp.ClientSession(trust_env=False) as session:
        admin = {"Authorization": f"Bearer {stack.keys['SALTWAY_ADMIN_KEY']}"}
        async with session.get(f"{stack.url}/admin/api/live", headers=admin) as reply:
            found += [f"gateway still has {len(live)} requests" for live in [(await reply.json())["requests"]] if live]
        for row in await _workers(stack):
            headers = {"Authorization": f"Bearer {token}"}
            async with session.get(f"{row['url']}/load", headers=headers) as reply:
                load = await reply.json()
            async with session.get(f"{row['url']}/kv/snapshot", headers=headers) as reply:
                blocks = list(decode_snapshot(await reply.read()).blocks)
            on_device = sum(block.tier == 0 for block in blocks)
            if load["running"] or load["waiting"]:
                found.append(f"{row['id']} still runs {load['running']} and queues {load['waiting']}")
            if load["free_blocks"] + on_device != load["total_blocks"]:
                found.append(f"{row['id']} lost {load['total_blocks'] - load['free_blocks'] - on_device} blocks")
    return found


def _as_text(figures: dict[str, Any]) -> str:
    rows = [[name, *(round(value) for value in sample.values())] for name, sample in figures["last"].items()]
    head = f"{figures['minutes']} minutes, requests {figures['requests']}"
    against = {name: figures[name] for name in _VERDICTS if figures[name]}
    tail = "passed" if figures["passed"] else f"FAILED: {against}, exit code {figures['exit_code']}"
    return "\n".join([head, table(["process", *_GROWTH], rows), tail])


def _flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description="Whether anything grows under traffic.")
    parser.add_argument("--minutes", type=float, default=30.0, help="at least 1.5, to tell growth from noise")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--nice", type=int, default=0, help="how far everything stands back behind other programs")
    parser.add_argument("--json", action="store_true", help="print one JSON object last")
    flags = parser.parse_args()
    if flags.minutes < 1.5:
        parser.error("--minutes must be at least 1.5")
    return flags


if __name__ == "__main__":
    sys.exit(main())
