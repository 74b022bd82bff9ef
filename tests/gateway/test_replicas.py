"""Several gateways in front of the same workers: each builds the same index, and says what it decided without it."""

import asyncio
from typing import Any

import pytest

from gateway import cluster
from tests.gateway.scripted_worker import ScriptedWorker
from tests.gateway.stack import Stack, running


def said(desk: int) -> dict[str, Any]:
    content = f"Desk {desk}. Which way did the salt wagons take, and who kept the books of the road?"
    return {"model": "tiny", "messages": [{"role": "user", "content": content}]}


async def knows(stack: Stack, workers: list[ScriptedWorker]) -> None:
    for worker in workers:
        await stack.indexed(worker.worker_id, worker.blocks)


async def test_what_one_gateway_sent_away_the_other_finds_again() -> None:
    workers = [ScriptedWorker("w0"), ScriptedWorker("w1")]
    async with (
        running(*workers) as first,
        running(ScriptedWorker("unused"), urls=tuple(worker.url for worker in workers)) as second,
    ):
        for desk in range(6):
            await (first, second)[desk % 2].post(said(desk))
        for stack in (first, second):
            await knows(stack, workers)
        for desk in range(6):
            await (second, first)[desk % 2].post(said(desk))
        homes = {}
        for stack in (first, second):
            cold, warm = (await stack.ledger(6))[:3], (await stack.ledger(6))[3:]
            homes[stack.url] = [row.worker_id for row in cold], [row.worker_id for row in warm]
            assert [row.cached_tokens for row in cold] == [0, 0, 0]
            for row in warm:
                assert row.cached_tokens == row.predicted_tokens == row.available_tokens > 0
                assert row.placement_mode == "events"
        assert homes[first.url][0] == homes[second.url][1]
        assert homes[first.url][1] == homes[second.url][0]
        assert "saltway_blind_decision_share 0.0" in await (await second.get("/metrics", second.keys.admin)).text()


async def test_a_joining_gateway_is_not_ready_before_its_snapshot_and_counts_what_it_decided_blind() -> None:
    worker = ScriptedWorker()
    async with running(worker) as first:
        await first.post(said(1))
        await knows(first, [worker])
        worker.snapshot_gate = asyncio.Event()
        async with running(ScriptedWorker("unused"), urls=(worker.url,), wait=False) as second:
            await second.shows("w0", state="ready", synced=False)
            assert (await second.get("/ready")).status == 503
            assert (await second.post(said(1))).headers["x-saltway-placement"] == "load-only"
            worker.snapshot_gate.set()
            await second.serving()
            await knows(second, [worker])
            assert (await second.post(said(1))).headers["x-saltway-placement"] == "events"
            assert "saltway_blind_decision_share 0.5" in await (await second.get("/metrics", second.keys.admin)).text()


async def test_it_waits_for_the_snapshots_of_all_workers_that_are_ready() -> None:
    workers = [ScriptedWorker("w0"), ScriptedWorker("w1"), ScriptedWorker("w2")]
    workers[1].snapshot_gate = asyncio.Event()
    workers[2].state = "starting"
    async with running(*workers, wait=False) as stack:
        await stack.shows("w0", synced=True)
        await stack.shows("w1", state="ready", synced=False)
        assert (await stack.get("/ready")).status == 503
        workers[1].snapshot_gate.set()
        await stack.serving()


async def test_a_worker_that_gives_no_snapshot_is_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "JOIN_SECONDS", 0.5)
    workers = [ScriptedWorker("w0"), ScriptedWorker("w1")]
    workers[1].snapshot_gate = asyncio.Event()
    async with running(*workers, wait=False) as stack:
        await stack.serving()
        await stack.shows("w1", state="ready", synced=False)
