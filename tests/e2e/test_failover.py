"""A worker that is killed: its session goes on elsewhere, and when it is back it is used again."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
from openai import OpenAI

from bench.stack import Stack
from tests.e2e.workers import Workers, eventually

MODEL = "smollm2"


class Chat:
    """One session, turn after turn."""

    def __init__(self, client: OpenAI, name: str) -> None:
        self._client = client
        facts = " ".join(f"Fact {number} of {name} is {number * 3}." for number in range(12))
        self._messages: list[Any] = [{"role": "system", "content": f"{name} remembers. {facts}"}]
        self.missed: dict[str, int] = {}

    def turn(self, text: str) -> tuple[str, int]:
        """(worker, cached tokens)"""
        self._messages.append({"role": "user", "content": text})
        raw = self._client.chat.completions.with_raw_response.create(
            model=MODEL, messages=self._messages, max_tokens=4, temperature=0
        )
        reply = raw.parse()
        missed = (entry.split("=") for entry in raw.headers["x-saltway-miss"].split(","))
        self.missed = {reason: int(tokens) for reason, tokens in missed}
        self._messages.append({"role": "assistant", "content": reply.choices[0].message.content})
        return raw.headers["x-saltway-worker"], int(raw.headers["x-saltway-cached-tokens"])


def _worker(admin: httpx2.Client, name: str) -> dict[str, Any]:
    """What the gateway knows of a worker; nothing while nobody answers under that name."""
    rows = admin.get("/admin/api/workers").raise_for_status().json()["workers"]
    return next((row for row in rows if row["id"] == name), {})


def test_a_killed_worker_is_replaced_and_comes_back(
    acme: OpenAI, admin: httpx2.Client, stack: Stack, workers: Workers
) -> None:
    chats = [Chat(acme, f"Failover {number}") for number in range(6)]
    with ThreadPoolExecutor(len(chats)) as pool:
        homes = list(pool.map(lambda chat: chat.turn("Hello.")[0], chats))
    assert set(homes) == {"w0", "w1"}
    for chat, home in zip(chats, homes, strict=True):
        worker, cached = chat.turn("And now?")
        assert worker == home
        assert cached > 0

    victim = homes[0]
    before = _worker(admin, victim)
    os.kill(stack.worker_pid(victim), signal.SIGKILL)
    worker, cached = chats[0].turn("Still there?")
    assert worker != victim
    assert cached == 0
    assert max(chats[0].missed, key=lambda reason: chats[0].missed[reason]) == "worker_lost"

    def is_back() -> bool:
        row = _worker(admin, victim)
        return row.get("state") == "ready" and row["epoch"] != before["epoch"] and row["stream"] == "live"

    assert eventually(is_back)
    # What it held in memory is gone, and the index knows; then it takes sessions again and they return to it.
    assert eventually(workers.indexed)
    fresh = [Chat(acme, f"Afterwards {number}") for number in range(6)]
    with ThreadPoolExecutor(len(fresh)) as pool:
        homes = list(pool.map(lambda chat: chat.turn("Hello.")[0], fresh))
    assert victim in homes
    for chat, home in zip(fresh, homes, strict=True):
        worker, cached = chat.turn("And now?")
        assert worker == home
        assert cached > 0
