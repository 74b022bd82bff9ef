"""Clients that leave in the middle of a stream."""

import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
from openai import OpenAI

from tests.e2e.workers import Workers, eventually

MODEL = "smollm2"
CLOSES = 200


def _open_and_leave(client: OpenAI, number: int) -> str:
    """Reads two frames of a long reply and closes. Returns the worker's name."""
    messages: list[Any] = [{"role": "user", "content": f"Tell a very long story, number {number}."}]
    raw = client.chat.completions.with_raw_response.create(
        model=MODEL, messages=messages, max_tokens=2000, temperature=1, stream=True
    )
    with raw.parse() as stream:
        for _ in zip(range(2), stream, strict=False):
            pass
    return raw.headers["x-saltway-worker"]


def test_a_closed_stream_frees_its_slot_within_a_step(acme: OpenAI, workers: Workers) -> None:
    assert eventually(workers.idle)
    worker = _open_and_leave(acme, 0)
    step = workers.load(worker)["step"]
    assert eventually(workers.idle)
    # The steps that pass while the close travels through two sockets are short; 2,000 would be the whole reply.
    assert workers.load(worker)["step"] - step <= 10


def test_two_hundred_early_closes_leak_nothing(acme: OpenAI, workers: Workers, admin: httpx2.Client) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: _open_and_leave(acme, number), range(CLOSES)))
    assert eventually(workers.idle)
    for worker in workers.names:
        load = workers.load(worker)
        assert load["free_blocks"] + workers.on_device(worker) == load["total_blocks"]
    assert eventually(lambda: _in_flight(admin) == 0)
    # All slots are free: as many requests as both workers have slots run at once and end.
    with ThreadPoolExecutor(16) as pool:
        replies = list(pool.map(lambda number: _short(acme, number), range(16)))
    assert all(replies)
    assert eventually(workers.idle)


def _short(client: OpenAI, number: int) -> bool:
    reply = client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": f"Say {number}."}], max_tokens=2
    )
    return reply.choices[0].finish_reason is not None


def _in_flight(admin: httpx2.Client) -> float:
    text = admin.get("/metrics").raise_for_status().text
    match = re.search(r"^saltway_(?:gateway_)?in_flight(?:_requests)?(?:\{[^}]*\})? ([0-9.]+)$", text, re.MULTILINE)
    assert match is not None
    return float(match[1])
