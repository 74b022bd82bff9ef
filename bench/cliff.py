"""The eviction cliff and its cure: coding-agent sessions on a device pool that holds a third of them.

The real KV memory with real books and moves, over blocks that are a few bytes each; the time to the first token is
worked out from its counts and from rates measured in the same run. A recorded block of 64 tokens is replayed as one
block of 16 here, so a session of 60,000 tokens becomes one of 15,000.
"""

import gzip
import heapq
import io
import json
import tarfile
import time
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles
from tempfile import TemporaryDirectory
from typing import Any

import torch

from cacheplane.identity import Namespace, Span
from worker.kv import KVLimits, KVMemory, KVShape, SlotLayout
from worker.kv.blockfile import BlockFile
from worker.wire import Retention, RetentionRange

_BLOCK = 16
_SHAPE = KVShape(layers=1, kv_heads=1, head_dim=1, dtype=torch.float32)
_STAGGER_SECONDS = 20.0
_LEASE = Retention([RetentionRange(priority=80, ttl_ms=120_000)])


@dataclass(frozen=True, slots=True)
class Rates:
    """Tokens a second: computed, loaded from host, loaded from disk."""

    prefill: float
    host: float
    disk: float


@dataclass(frozen=True, slots=True)
class Turn:
    """One request: when, whose, its blocks, and whether it ends in a tool call, so that the session will be back."""

    at: float
    session: int
    blocks: list[int]
    returns: bool


@dataclass(frozen=True, slots=True)
class Configuration:
    """What the memory may use, in shares of all blocks of all sessions."""

    name: str
    device: float
    host: float
    disk: float
    leases: bool


CONFIGURATIONS = [
    Configuration("all on the device", 1, 0, 0, leases=False),
    Configuration("device", 1 / 3, 0, 0, leases=False),
    Configuration("device + leases", 1 / 3, 0, 0, leases=True),
    Configuration("host", 1 / 3, 1 / 3, 0, leases=False),
    Configuration("host + disk", 1 / 3, 1 / 3, 1, leases=False),
    Configuration("host + disk + leases", 1 / 3, 1 / 3, 1, leases=True),
]


class Stopped:
    """A clock that stands where the replay puts it, in seconds."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def made_up_sessions(count: int = 12, turns: int = 16, start: int = 120) -> list[list[dict[str, Any]]]:
    """Sessions like the recorded ones, when no file is given: a long start, then a few blocks more each turn."""
    stops = ["tool_use" if turn % 5 else "end_turn" for turn in range(turns)]
    return [
        [{"t": 15.0 * turn, "hash_ids": list(range(start + 6 * turn)), "stop": stops[turn]} for turn in range(turns)]
        for _ in range(count)
    ]


def recorded_sessions(path: Path, count: int, most_blocks: int = 1_000) -> list[list[dict[str, Any]]]:
    """The first sessions of the archive whose prompts stay below a size."""
    found: list[list[dict[str, Any]]] = []
    with gzip.open(path) as raw, tarfile.open(fileobj=io.BytesIO(raw.read())) as archive:
        for member in sorted(archive.getmembers(), key=lambda item: item.name):
            file = archive.extractfile(member) if member.name.endswith(".json") else None
            if file is None or len(found) == count:
                continue
            requests = [request for request in json.load(file)["requests"] if request.get("hash_ids")]
            if requests and max(len(request["hash_ids"]) for request in requests) <= most_blocks:
                found.append(requests)
    return found


def replay(sessions: list[list[dict[str, Any]]], rates: Rates) -> list[dict[str, Any]]:
    """All configurations over the same turns; one row each: hit rate, TTFT p50 and p99 in ms, blocks moved."""
    turns = list(turns_of(sessions))
    total = len({(turn.session, block) for turn in turns for block in turn.blocks})
    return [_run(configuration, turns, total, rates) for configuration in CONFIGURATIONS]


def turns_of(sessions: list[list[dict[str, Any]]]) -> Iterator[Turn]:
    """Turns of all sessions in order of time, the sessions starting one after another."""
    return heapq.merge(
        *(list(_of(number, requests)) for number, requests in enumerate(sessions)), key=lambda turn: turn.at
    )


def _of(number: int, requests: list[dict[str, Any]]) -> Iterator[Turn]:
    for request in sorted(requests, key=lambda one: one["t"]):
        at = number * _STAGGER_SECONDS + request["t"]
        yield Turn(at, number, request["hash_ids"], request.get("stop") == "tool_use")


def _run(configuration: Configuration, turns: list[Turn], total: int, rates: Rates) -> dict[str, Any]:
    clock, cached, prompt = Stopped(), 0, 0
    ttft: list[float] = []
    with TemporaryDirectory() as folder:
        memory = _memory(configuration, turns, total, Path(folder), clock)
        for turn in turns:
            clock.now = max(clock.now, turn.at)
            by_tier, size = _serve(memory, turn, configuration)
            cached += sum(by_tier)
            prompt += size
            seconds = (size - sum(by_tier)) / rates.prefill + by_tier[1] / rates.host + by_tier[2] / rates.disk
            ttft.append(1000 * seconds)
        moves = memory.tiers.moves
        memory.shut()
    cuts = quantiles(ttft, n=100)
    return {
        "configuration": configuration.name,
        "hit_rate": round(cached / prompt, 4),
        "ttft_p50_ms": round(cuts[49], 1),
        "ttft_p99_ms": round(cuts[98], 1),
        "offloaded": moves.offloaded,
        "written": moves.written,
        "promoted": moves.promoted,
    }


def _memory(configuration: Configuration, turns: list[Turn], total: int, folder: Path, clock: Stopped) -> KVMemory:
    longest = max(len(turn.blocks) for turn in turns) * _BLOCK + _BLOCK
    pool = int(configuration.device * total) + 1
    slots = SlotLayout(_SHAPE, slots=1, context=longest, blocks=pool, block_size=_BLOCK)
    limits = KVLimits(
        host_bytes=int(configuration.host * total) * _SHAPE.bytes_per_token * _BLOCK,
        disk_bytes=int(configuration.disk * total) * BlockFile(_SHAPE, _BLOCK, "cliff").size,
        folder=folder,
        fingerprint="cliff",
    )
    return KVMemory(slots, limits, clock=clock)


def _serve(memory: KVMemory, turn: Turn, configuration: Configuration) -> tuple[tuple[int, int, int], int]:
    """One request from start to end; (device, host, disk) tokens reused, and the prompt's length."""
    tokens = array("I", [id_ * _BLOCK + offset for id_ in turn.blocks for offset in range(_BLOCK)])
    tokens.append(0)
    namespace = Namespace(turn.session.to_bytes(32, "little"))
    holding = memory.open(tokens, [Span(0, namespace)])
    assert holding is not None
    while holding.loading:
        time.sleep(0.0002)  # the loader needs the interpreter too
        memory.poll()
    memory.extend(holding, tokens, len(tokens))
    lease = None
    if configuration.leases and turn.returns:
        lease = Retention(_LEASE.ranges, f"session-{turn.session}")
    memory.close(holding, "agents", lease)
    _let_time_pass(memory)
    cached = holding.cached
    return (cached.device, cached.host, cached.disk), len(tokens)


def _let_time_pass(memory: KVMemory) -> None:
    """Seconds lie between two turns, in which the disk has long written what it was asked to."""
    memory.poll()
    while memory.tiers.writing:
        time.sleep(0.0002)
        memory.poll()
