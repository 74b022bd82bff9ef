"""Following workers: joining, restarting, vanishing, disagreeing."""

import asyncio
import io
import json
from typing import Any

import pytest

from cacheplane import breaker
from cacheplane.breaker import TRIP_FAILURES
from cacheplane.fleet import Fleet
from cacheplane.parity import ENOUGH
from cacheplane.subscriber import Subscriber
from gateway.link import reached_at
from tests.gateway.scripted_worker import Script, ScriptedWorker
from tests.gateway.stack import Stack, eventually, running

BODY: dict[str, Any] = {
    "model": "tiny",
    "messages": [{"role": "user", "content": "Which way did the salt wagons take?"}],
}


async def view(stack: Stack, position: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = (await stack.admin("workers"))["workers"][position]
    return found


async def state_is(stack: Stack, state: str, position: int = 0) -> None:
    async def reached() -> bool:
        return bool((await view(stack, position))["state"] == state)

    await eventually(reached)


async def test_a_worker_joins_with_its_figures_and_a_live_stream() -> None:
    async with running() as stack:
        seen = await view(stack)
        worker = stack.workers[0]
        assert (seen["id"], seen["url"], seen["model"], seen["epoch"]) == ("w0", worker.url, "tiny", worker.epoch)
        assert (seen["stream"], seen["synced"], seen["error"]) == ("live", True, None)
        assert (seen["total_blocks"], seen["prefill_tps"]) == (4096, 1000.0)


async def test_blocks_that_were_there_before_the_gateway_are_in_the_index() -> None:
    worker = ScriptedWorker()
    async with running(worker) as first:
        await first.post(BODY)
        blocks = len(worker.requests[0].tokens) // 16
        await first.indexed("w0", blocks)
        # A second gateway joins: it was not there for the events, the snapshot tells it.
        async with running(ScriptedWorker("unused"), urls=(worker.url,)) as second:
            await second.indexed("w0", blocks)
            await second.post(BODY)
            (row,) = await second.ledger(1)
            assert (row.predicted_tokens, row.cached_tokens) == (blocks * 16, blocks * 16)


async def test_events_and_delivered_reuse_are_counted_per_worker() -> None:
    async with running() as stack:
        await stack.post(BODY)
        blocks = len(stack.workers[0].requests[0].tokens) // 16
        await stack.indexed("w0", blocks)
        await stack.post(BODY)
        seen = await view(stack)
        assert (seen["finished_requests"], seen["parity_mismatches"]) == (2, 0)
        assert seen["predicted_tokens"] == seen["delivered_tokens"] == blocks * 16
        assert seen["stream_counters"]["applied"] == 1
        assert seen["stream_counters"]["snapshots"] >= 1


async def test_a_restarted_worker_is_met_anew_and_its_old_blocks_are_forgotten() -> None:
    async with running() as stack:
        worker = stack.workers[0]
        await stack.post(BODY)
        await stack.indexed("w0", len(worker.requests[0].tokens) // 16)
        await worker.kill()
        await state_is(stack, "suspect")
        before = worker.epoch
        await worker.start()

        async def met_anew() -> bool:
            seen = await view(stack)
            return bool(seen["epoch"] == worker.epoch != before and seen["state"] == "ready" and seen["synced"])

        await eventually(met_anew)
        assert (await view(stack))["index_blocks"] == 0
        reply = await stack.post(BODY)
        assert (reply.status, reply.headers["x-saltway-predicted-tokens"]) == (200, "0")
        await stack.indexed("w0", len(worker.requests[0].tokens) // 16)  # its new events are followed


async def test_a_stream_that_fails_by_a_fault_of_ours_begins_anew(
    monkeypatch: pytest.MonkeyPatch, log_lines: io.StringIO
) -> None:
    whole, fails = Subscriber.run, iter([True])

    async def run(subscriber: Subscriber) -> None:
        if next(fails, False):
            raise ZeroDivisionError
        await whole(subscriber)

    monkeypatch.setattr(Subscriber, "run", run)
    async with running() as stack:
        await stack.post(BODY)
        await stack.settled()
    assert '"error": "ZeroDivisionError"' in log_lines.getvalue()


async def test_a_session_returns_to_the_worker_that_holds_it() -> None:
    async with running(ScriptedWorker("w0"), ScriptedWorker("w1")) as stack:
        first = await stack.post(BODY)
        home = first.headers["x-saltway-worker"]
        worker = next(worker for worker in stack.workers if worker.worker_id == home)
        await stack.indexed(home, len(worker.requests[0].tokens) // 16)
        for _ in range(3):
            reply = await stack.post(BODY)
            assert reply.headers["x-saltway-worker"] == home
            assert reply.headers["x-saltway-cached-tokens"] == reply.headers["x-saltway-predicted-tokens"] != "0"


async def test_a_draining_worker_gets_no_new_requests() -> None:
    async with running(ScriptedWorker("w0"), ScriptedWorker("w1")) as stack:
        stack.workers[0].state = "draining"
        await state_is(stack, "draining")
        for _ in range(4):
            assert (await stack.post(BODY)).headers["x-saltway-worker"] == "w1"


async def test_workers_of_one_name_and_another_fingerprint_are_refused_visibly() -> None:
    first = ScriptedWorker("w0")
    async with running(first, ScriptedWorker("w1", fingerprint="fp-2"), wait=False) as stack:
        states: set[tuple[str, ...]] = set()

        async def settled() -> bool:
            views = (await stack.admin("workers"))["workers"]
            states.add(tuple(sorted(view["state"] for view in views)))
            return ("mismatch", "ready") in states

        await eventually(settled)
        chosen = {(await stack.post(BODY)).headers["x-saltway-worker"] for _ in range(4)}
        assert len(chosen) == 1
        assert len((await (await stack.get("/v1/models", stack.keys.acme)).json())["data"]) == 1


async def test_two_addresses_with_one_worker_id_are_not_confused() -> None:
    async with running(ScriptedWorker("same"), ScriptedWorker("same"), wait=False) as stack:

        async def one_refused() -> bool:
            views = (await stack.admin("workers"))["workers"]
            return sorted((view["state"], view["error"] or "") for view in views) == [
                ("ready", ""),
                ("unreached", "refused"),
            ]

        await eventually(one_refused)
        assert (await stack.post(BODY)).status == 200


async def test_a_worker_with_an_id_that_cannot_be_a_header_is_refused() -> None:
    async with running(ScriptedWorker("w\r\nx: y"), wait=False) as stack:

        async def refused() -> bool:
            return bool((await view(stack))["error"] == "refused")

        await eventually(refused)
        assert (await stack.post(BODY)).status == 503


async def test_a_worker_whose_blocks_cannot_be_named_is_refused() -> None:
    async with running(ScriptedWorker("w0", block_size=24), ScriptedWorker("w1"), wait=False) as stack:

        async def refused() -> bool:
            return bool((await view(stack))["error"] == "refused")

        await eventually(refused)
        await stack.serving()
        assert (await stack.post(BODY)).headers["x-saltway-worker"] == "w1"


@pytest.mark.parametrize(
    "figures",
    [
        {"prefill_tps": -5.0},
        {"queued_prefill_tokens": -(10**9)},
        {"decode_sequences": 10**400},
        {"decode_step_ms": -1e6},
        {"epoch": 10**400},
    ],
    ids=lambda figures: next(iter(figures)),
)
async def test_a_worker_with_figures_that_none_can_have_is_left_alone(figures: dict[str, Any]) -> None:
    async with running(ScriptedWorker("w0"), ScriptedWorker("w1")) as stack:
        stack.workers[0].figures = figures
        await stack.shows("w0", error="malformed_reply", state="suspect")
        for _ in range(3):
            assert (await stack.post(BODY)).headers["x-saltway-worker"] == "w1"
        stack.workers[0].figures = {}
        await stack.shows("w0", error=None, state="ready")


@pytest.mark.parametrize("field", ["pub", "replay"])
async def test_a_worker_whose_events_are_not_on_the_network_is_refused(field: str) -> None:
    async with running(wait=False) as stack:
        worker = stack.workers[0]
        await stack.ready()
        setattr(worker, field, "ipc:///tmp/saltway-of-somebody-else")
        worker.epoch += 1  # met anew

        async def refused() -> bool:
            return bool((await view(stack))["error"] == "refused")

        await eventually(refused)


async def test_an_address_where_nobody_answers_is_shown_and_disturbs_nobody() -> None:
    worker = ScriptedWorker()
    async with running(worker, urls=("http://127.0.0.1:9",), wait=False) as stack:
        await eventually(lambda: _error(stack))
        seen = await view(stack)
        assert (seen["state"], seen["error"], seen["id"]) == ("unreached", "unreachable", "")
        response = await stack.post(BODY)
        assert (response.status, (await response.json())["error"]["code"]) == (503, "starting")


async def _error(stack: Stack) -> bool:
    return (await view(stack))["error"] is not None


async def test_an_address_that_does_not_answer_is_said_once_with_the_reason(log_lines: io.StringIO) -> None:
    async with ScriptedWorker() as other:
        other.token = "another"
        async with running(urls=("http://127.0.0.1:1", other.url), wait=False):
            await eventually(lambda: other.strangers > 2)
    lines = [json.loads(line) for line in log_lines.getvalue().splitlines()]
    silent = {line["url"]: line["reason"] for line in lines if line["event"] == "worker does not answer"}
    assert silent == {"http://127.0.0.1:1": "unreachable", other.url: "unauthorized"}
    assert len(lines) == 2


async def test_a_beat_that_fails_in_an_unforeseen_way_is_followed_by_another(
    monkeypatch: pytest.MonkeyPatch, log_lines: io.StringIO
) -> None:
    observe, faults = Fleet.observe, iter([KeyError("acme's own words")])

    def faulty(fleet: Fleet, *report: Any) -> None:
        for fault in faults:
            raise fault
        observe(fleet, *report)

    monkeypatch.setattr(Fleet, "observe", faulty)
    async with running() as stack:  # the worker is ready in the end
        assert (await stack.post(BODY)).status == 200
    failed = [json.loads(line) for line in log_lines.getvalue().splitlines() if "heartbeat failed" in line]
    assert [line["error"] for line in failed] == ["KeyError"]
    assert "acme" not in log_lines.getvalue().replace('"tenant": "acme"', "")


@pytest.mark.parametrize(
    ("said", "url", "address"),
    [
        ("tcp://10.0.0.7:5001", "http://worker-a:9001", "tcp://10.0.0.7:5001"),
        ("tcp://0.0.0.0:5001", "http://worker-a:9001/", "tcp://worker-a:5001"),
        ("tcp://*:5001", "https://10.0.0.7", "tcp://10.0.0.7:5001"),
        ("tcp://[::]:5001", "http://[fd00::7]:9001", "tcp://[fd00::7]:5001"),
    ],
)
def test_events_of_a_worker_that_listens_everywhere_come_from_where_it_is(said: str, url: str, address: str) -> None:
    assert reached_at(said, url) == address


async def test_models_stay_listed_while_their_only_worker_is_away() -> None:
    async with running() as stack:
        await stack.workers[0].kill()
        await state_is(stack, "suspect")
        listed = await (await stack.get("/v1/models", stack.keys.acme)).json()
        assert [model["id"] for model in listed["data"]] == ["tiny"]
        assert (await stack.post(BODY)).status == 503  # away, and not "no such model"


async def test_a_worker_that_hangs_lets_go_of_its_streams(monkeypatch: Any) -> None:
    monkeypatch.setattr("gateway.link.CUT_SECONDS", 0.0)
    monkeypatch.setattr("gateway.workers.CONTROL_SECONDS", 1.0)
    async with running(ScriptedWorker("w0"), ScriptedWorker("w1")) as stack:
        one, two = stack.workers
        one.scripts = two.scripts
        one.scripts.append(Script(hold_before_start=asyncio.Event()))
        asking = asyncio.create_task(stack.post(BODY))
        await eventually(lambda: one.requests or two.requests)
        stuck = one if one.requests else two
        stuck.frozen = True  # its process stands still: connections stay open, nothing is answered
        reply = await asking
        assert reply.status == 200
        assert reply.headers["x-saltway-worker"] != stuck.worker_id


async def test_a_worker_whose_predictions_are_wrong_is_left_out_until_its_snapshot_is_taken_anew() -> None:
    async with running() as stack:
        worker = stack.workers[0]
        await stack.post(BODY)
        await stack.indexed("w0", len(worker.requests[0].tokens) // 16)
        worker.forget()  # without a word to anybody
        worker.default = Script(store=False)
        reasons = [(await stack.post(BODY)).headers["x-saltway-cached-tokens"] for _ in range(ENOUGH)]
        assert reasons == ["0"] * ENOUGH

        await stack.shows("w0", parity_suspensions=1, parity="trusted", index_blocks=0)
        assert (await stack.post(BODY)).headers["x-saltway-predicted-tokens"] == "0"
        seen = await view(stack)
        assert seen["decisions"]["events"] >= ENOUGH
        text = await (await stack.get("/metrics", stack.keys.admin)).text()
        assert 'saltway_worker_parity{state="trusted",worker="w0"} 1.0' in text


async def fail_until_tripped(stack: Stack) -> None:
    """Requests fail one after another, though the worker reports in between."""
    stack.workers[0].scripts.extend(Script(drop_after=-1) for _ in range(TRIP_FAILURES))
    for _ in range(TRIP_FAILURES):
        await stack.serving()
        assert (await stack.post(BODY)).status == 502


async def test_a_worker_where_requests_keep_failing_though_it_reports_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(breaker, "FIRST_SECONDS", breaker.LONGEST_SECONDS)
    async with running() as stack:
        await fail_until_tripped(stack)
        await state_is(stack, "tripped")
        assert (await view(stack))["circuit"] == "open"
        assert (await stack.post(BODY)).status == 503


async def test_after_a_while_it_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(breaker, "FIRST_SECONDS", 0.1)
    async with running() as stack:
        await fail_until_tripped(stack)
        await state_is(stack, "probing")
        assert (await stack.post(BODY)).status == 200
        seen = await view(stack)
        assert (seen["state"], seen["circuit"], seen["failed_requests"]) == ("ready", "closed", TRIP_FAILURES)
