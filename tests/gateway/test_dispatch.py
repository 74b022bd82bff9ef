"""Failing workers, leaving clients, stopped readers: who gets what, and what is left behind."""

import asyncio
import io
import json
import socket
from typing import Any

import pytest
from openai import APIError, APIStatusError

from gateway.dispatch import _together
from gateway.frames import DeltaFrame, FinishFrame
from gateway.settings import Limits
from tests.gateway.scripted_worker import Script, ScriptedWorker
from tests.gateway.stack import Stack, eventually, running

BODY: dict[str, Any] = {"model": "tiny", "messages": [{"role": "user", "content": "Is the road open?"}]}
STREAM = BODY | {"stream": True}


def pair() -> tuple[ScriptedWorker, ScriptedWorker]:
    return ScriptedWorker("w0"), ScriptedWorker("w1")


async def first_choice(stack: Stack) -> tuple[ScriptedWorker, ScriptedWorker]:
    """(the worker that this body goes to, the other one); placement breaks ties the same way each time."""
    response = await stack.post(BODY)
    chosen = response.headers["x-saltway-worker"]
    workers = {worker.worker_id: worker for worker in stack.workers}
    return workers.pop(chosen), workers.popitem()[1]


async def idle(stack: Stack) -> None:
    """Until nothing is in flight."""

    async def nothing() -> bool:
        return not (await stack.admin("live"))["requests"]

    await eventually(nothing)


@pytest.mark.parametrize(
    "script",
    [
        Script(refuse=(503, "overloaded", None)),
        Script(refuse=(503, "starting", None)),
        Script(refuse=(500, "internal", None)),
        Script(drop_after=-1),
        Script(drop_after=0),
        Script(error_after=0),
        Script(raw_line=b"this is no frame\n"),
        Script(raw_line=b'{"type":"start","prompt_tokens":1,"cached":{}}\n'),
        Script(finish="abort", pieces=[]),
    ],
    ids=lambda script: repr(script)[:60],
)
async def test_a_worker_that_fails_before_the_first_token_is_replaced_unseen(script: Script) -> None:
    async with running(*pair()) as stack:
        one, two = stack.workers
        one.scripts = two.scripts  # whoever is asked first takes what is there
        for body in (BODY, STREAM):
            await stack.ready()
            one.scripts.append(script)
            response = await stack.post(body)
            assert response.status == 200
            assert "Hello" in await response.text()
            assert one.requests[-1].request_id == two.requests[-1].request_id == response.headers["x-request-id"]
        await idle(stack)
        rows = await stack.ledger(2)
        assert [(row.status, row.completion_tokens) for row in rows] == [(200, len("Hello, world."))] * 2


@pytest.mark.parametrize(
    "script",
    [
        Script(claims={"cached": {"device": 1_000_000}}),
        Script(claims={"cached": {"device": -16}}),
        Script(claims={"cached": {"device": 10**30}}),
        Script(claims={"prompt_tokens": 3}),
        Script(claims={"type": "finish", "index": 0, "reason": "length"}),
        Script(end_claims={"prompt_tokens": 3}),
        Script(end_claims={"completion_tokens": -1}),
        Script(end_claims={"load": {"queued_prefill_tokens": -(10**9)}}),
    ],
    ids=lambda script: repr(script.claims or script.end_claims),
)
async def test_what_a_worker_says_that_cannot_be_so_reaches_no_client_and_no_books(script: Script) -> None:
    async with running(*pair()) as stack:
        one, two = stack.workers
        one.scripts = two.scripts
        for body in (BODY, STREAM | {"stream_options": {"include_usage": True}}):
            await stack.ready()
            one.scripts.append(script)
            response = await stack.post(body)
            assert response.status == 200
            assert "Hello" in await response.text()
            assert one.requests[-1].request_id == two.requests[-1].request_id == response.headers["x-request-id"]
        tokens = len(one.requests[0].tokens)
        for row in await stack.ledger(2):
            assert (row.status, row.prompt_tokens) == (200, tokens)
            assert row.completion_tokens == len("Hello, world.")
            assert 0 <= row.cached_tokens < tokens


async def test_a_plain_reply_is_made_good_elsewhere_even_after_the_first_token() -> None:
    async with running(*pair()) as stack:
        first, other = await first_choice(stack)
        first.scripts.append(Script(drop_after=2))
        response = await stack.post(BODY)
        assert (await response.json())["choices"][0]["message"]["content"] == "Hello, world."
        assert response.headers["x-saltway-worker"] == other.worker_id


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("how", [{"drop_after": 2}, {"error_after": 3}, {"drop_at_end": True}], ids=repr)
async def test_a_stream_goes_on_behind_what_was_sent_when_its_worker_fails(how: dict[str, int], n: int) -> None:
    async with running(*pair()) as stack:
        first, other = await first_choice(stack)
        seen = asyncio.Event()
        first.scripts.append(Script(hold_after=(1, seen), **how))  # type: ignore[arg-type]
        said = ["" for _ in range(n)]
        ends = []
        async for chunk in await stack.client().chat.completions.create(
            **STREAM, n=n, stream_options={"include_usage": True}
        ):
            usage = chunk.usage
            for choice in chunk.choices:
                seen.set()
                said[choice.index] += choice.delta.content or ""
                ends += [choice.finish_reason] if choice.finish_reason else []
        assert (said, ends) == (["Hello, world."] * n, ["stop"] * n)
        assert usage is not None
        assert usage.completion_tokens == n * len("Hello, world.")
        begun, resumed = first.requests[-1], other.requests[-1]
        assert (begun.accepted, len(resumed.accepted)) == ([], n)
        assert all(len("Hello") <= len(choice.tokens) <= len("Hello, world.") for choice in resumed.accepted)
        assert resumed.sampling == begun.sampling
        assert resumed.sampling.seed is not None
        row = (await stack.ledger(2))[1]
        assert (row.status, row.completion_tokens, row.worker_id) == (200, n * len("Hello, world."), other.worker_id)
        assert "saltway_resumed_total 1.0" in await (await stack.get("/metrics", stack.keys.admin)).text()


@pytest.mark.parametrize("how", ["drop_after", "error_after", "finish"])
async def test_a_stream_that_no_worker_can_go_on_with_ends_with_one_error_frame_and_done(how: str) -> None:
    async with running(*pair()) as stack:
        seen = asyncio.Event()
        script = Script(hold_after=(2, seen), **{how: "abort" if how == "finish" else 3})  # type: ignore[arg-type]
        for worker in stack.workers:
            worker.default = script
        auth = {"authorization": f"Bearer {stack.keys.acme}"}
        async with stack.http.post(f"{stack.url}/v1/chat/completions", json=STREAM, headers=auth) as response:
            assert response.status == 200
            begun = await response.content.readuntil(b"Hello")
            seen.set()
            frames = (begun + await response.content.read()).decode().strip().split("\n\n")
        assert frames[-1] == "data: [DONE]"
        error = json.loads(frames[-2].removeprefix("data: "))
        assert list(error) == ["error"]
        assert (error["error"]["type"], error["error"]["param"]) == ("server_error", None)
        assert sum('"error"' in frame for frame in frames) == 1
        assert sum(len(worker.requests) for worker in stack.workers) == (1 if how == "finish" else 2)
        (row,) = await stack.ledger(1)
        assert (row.status, row.error_code) == (502, "worker_failed")
        assert row.completion_tokens >= len("Hello, ")  # what was sent is metered


async def test_the_sdk_raises_for_a_broken_stream() -> None:
    async with running() as stack:
        seen = asyncio.Event()
        stack.workers[0].default = Script(hold_after=(1, seen), drop_after=2)
        stream = await stack.client().chat.completions.create(**STREAM)

        async def read_on() -> None:
            async for _ in stream:
                seen.set()

        with pytest.raises(APIError):
            await read_on()


async def test_when_every_worker_is_full_the_client_is_told_to_come_back() -> None:
    async with running(*pair()) as stack:
        for worker in stack.workers:
            worker.default = Script(refuse=(503, "overloaded", None))
        response = await stack.post(BODY)
        assert (response.status, response.headers["retry-after"]) == (503, "1")
        assert (await response.json())["error"]["code"] == "overloaded"
        assert [len(worker.requests) for worker in stack.workers] == [1, 1]
        views = (await stack.admin("workers"))["workers"]
        assert [view["state"] for view in views] == ["ready", "ready"]  # full is not ill
        (row,) = await stack.ledger(1)
        assert (row.status, row.error_code) == (503, "overloaded")


async def test_a_failed_dispatch_makes_a_worker_suspect_until_its_next_heartbeat() -> None:
    async with running() as stack:
        worker = stack.workers[0]
        worker.scripts.append(Script(drop_after=-1))
        failed = await stack.post(BODY)
        assert failed.status == 502
        await stack.ready()
        assert (await stack.post(BODY)).status == 200


async def test_a_killed_worker_costs_a_session_nothing_but_its_cache() -> None:
    async with running(*pair()) as stack:
        first, other = await first_choice(stack)
        await first.kill()
        for body in (BODY, STREAM):
            response = await stack.post(body)
            assert (response.status, response.headers["x-saltway-worker"]) == (200, other.worker_id)


async def test_without_any_worker_the_answer_is_a_503_that_asks_for_patience() -> None:
    async with running() as stack:
        await stack.workers[0].kill()

        async def unavailable() -> bool:
            response = await stack.post(BODY)
            return response.status == 503 and response.headers["retry-after"] == "1"

        await eventually(unavailable)
        assert (await stack.get("/ready")).status == 503
        with pytest.raises(APIStatusError):
            await stack.client().chat.completions.create(**BODY)


async def test_a_client_that_leaves_a_stream_is_seen_upstream_at_once() -> None:
    async with running() as stack:
        worker = stack.workers[0]
        never = asyncio.Event()
        worker.scripts.append(Script(hold_after=(2, never)))
        stream = await stack.client().chat.completions.create(**STREAM)
        assert (await anext(aiter(stream))).choices[0].delta.role == "assistant"
        await stream.close()
        await eventually(worker.disconnect_seen.is_set)
        (row,) = await stack.ledger(1)
        assert (row.status, row.error_code, row.streamed) == (499, "client_closed", True)
        assert row.completion_tokens == len("Hello, ")
        assert row.prompt_tokens == len(worker.requests[0].tokens)
        await idle(stack)


@pytest.mark.parametrize("hold", ["before_start", "before_first"])
async def test_a_client_that_leaves_before_the_first_token_is_seen_too(hold: str) -> None:
    async with running() as stack:
        worker = stack.workers[0]
        worker.scripts.append(Script(**{f"hold_{hold}": asyncio.Event()}))  # type: ignore[arg-type]
        asking = asyncio.create_task(stack.post(BODY))
        await eventually(lambda: worker.requests)
        asking.cancel()
        await eventually(worker.disconnect_seen.is_set)
        (row,) = await stack.ledger(1)
        assert (row.status, row.worker_id) == (499, "w0")
        await idle(stack)


async def test_a_client_that_closes_after_done_was_served() -> None:
    async with running() as stack:
        reader, writer = await asyncio.open_connection(stack.settings.host, stack.settings.port)
        body = json.dumps(STREAM).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {stack.keys.acme}\r\n"
        writer.write(head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        await reader.readuntil(b"[DONE]")
        writer.close()
        (row,) = await stack.ledger(1)
        assert (row.status, row.finish_reason) == (200, "stop")
        assert stack.workers[0].disconnected == []


async def test_a_normal_end_looks_like_no_abort_to_the_worker() -> None:
    async with running() as stack:
        worker = stack.workers[0]
        for _ in range(3):
            assert (await stack.post(STREAM)).status == 200
        await eventually(lambda: len(worker.finished) == 3)
        assert worker.disconnected == []


async def test_many_early_closes_leave_nothing_behind() -> None:
    async with running() as stack:
        worker = stack.workers[0]
        worker.default = Script(hold_after=(1, asyncio.Event()))
        client = stack.client()

        async def taste() -> None:
            stream = await client.chat.completions.create(**STREAM)
            await anext(aiter(stream))
            await stream.close()

        before = len(asyncio.all_tasks())
        for _ in range(10):
            await asyncio.gather(*(taste() for _ in range(10)))
        await eventually(lambda: len(worker.disconnected) == 100)
        rows = await stack.ledger(100)
        assert {row.status for row in rows} == {499}
        await idle(stack)
        await eventually(lambda: len(asyncio.all_tasks()) <= before + 12)  # connections that the SDK keeps open


async def test_a_reader_that_stops_is_cut_and_the_worker_freed(log_lines: io.StringIO) -> None:
    async with running(limits=Limits(send_ms=1000)) as stack:
        worker = stack.workers[0]
        worker.scripts.append(Script(["salt " * 20_000] * 80))
        small = socket.socket()
        small.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        small.connect((stack.settings.host, stack.settings.port))
        reader, writer = await asyncio.open_connection(sock=small, limit=4096)
        body = json.dumps(STREAM).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {stack.keys.acme}\r\n"
        writer.write(head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        await reader.readline()  # and no more
        await eventually(worker.disconnect_seen.is_set)
        (row,) = await stack.ledger(1)
        assert (row.status, row.error_code) == (499, "client_stopped_reading")
        await idle(stack)
        assert b"[DONE]" not in await reader.read()  # what had been sent is there, then the connection ends
        writer.close()
    assert all(json.loads(line)["level"] == "info" for line in log_lines.getvalue().splitlines())


@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_has_a_deadline_even_on_a_worker_that_hangs(
    stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.dispatch.GRACE_SECONDS", 0.0)
    async with running(limits=Limits(deadline_ms=1000)) as stack:
        worker = stack.workers[0]
        never = asyncio.Event()
        worker.default = Script(hold_after=(1, never)) if stream else Script(hold_before_start=never)
        response = await stack.post(STREAM if stream else BODY)
        assert "deadline_exceeded" in await response.text()
        assert 0 < worker.requests[0].deadline_ms <= 1000
        if not stream:
            assert (response.status, response.headers["x-should-retry"]) == (504, "false")
        await eventually(worker.disconnect_seen.is_set)
        (row,) = await stack.ledger(1)
        assert (row.status, row.error_code) == (504, "deadline_exceeded")


def test_the_rest_of_a_reply_is_passed_on_with_its_finish_or_not_at_all() -> None:
    word, rest, end = DeltaFrame(0, "w", [5]), DeltaFrame(0, "\ufffd", []), FinishFrame(0, "length")
    assert _together([word, rest]) == ([word], [rest])
    assert _together([rest, end]) == ([rest, end], [])
    assert _together([word]) == ([word], [])
    assert _together([rest]) == ([], [rest])
