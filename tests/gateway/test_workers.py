"""The client to workers, against a scripted one; and the two declarations of the wire, against each other."""

import asyncio
from typing import Any

import msgspec
import pytest
from aiohttp import web

from gateway import frames, worker_wire, workers
from gateway.frames import DeltaFrame, EndFrame, FinishFrame, Frame, StartFrame
from gateway.up.ports import free_ports
from gateway.worker_wire import (
    GenerateRequest,
    ReleaseRequest,
    RetainRequest,
    Retention,
    RetentionRange,
    Sampling,
    SpanWire,
)
from gateway.workers import WorkerClient, WorkerFailedError, WorkerRefusedError, WorkerSession
from tests.gateway.scripted_worker import TOKEN, Script, ScriptedWorker
from tests.gateway.stack import eventually
from worker import wire

REQUEST = GenerateRequest(
    request_id="r1",
    tokens=list(range(10, 50)),
    spans=[SpanWire(0, "ab" * 32)],
    tag="t",
    sampling=Sampling(max_tokens=5),
    deadline_ms=1000,
)


async def read(client: WorkerClient, request: GenerateRequest = REQUEST) -> list[Frame]:
    """Every frame of a generation."""
    async with client.generate(request) as stream:
        return [frame async for batch in stream for frame in batch]


async def test_a_generation_is_read_frame_by_frame() -> None:
    async with ScriptedWorker() as worker, WorkerSession(TOKEN) as session:
        seen = await read(session.client(worker.url))
        assert isinstance(seen[0], StartFrame)
        assert [frame.text for frame in seen if isinstance(frame, DeltaFrame)] == ["Hello", ", ", "world", "."]
        assert isinstance(seen[-2], FinishFrame)
        assert isinstance(seen[-1], EndFrame)
        assert worker.requests == [REQUEST]


async def test_control_calls_return_typed_values() -> None:
    async with ScriptedWorker() as worker, WorkerSession(TOKEN) as session:
        client = session.client(worker.url + "/")
        assert (await client.model()).name == "tiny"
        load = await client.load()
        assert (load.epoch, load.state) == (worker.epoch, "ready")
        assert list((await client.snapshot()).blocks) == []


async def test_a_wrong_token_is_a_failure_of_the_worker_and_not_of_the_request() -> None:
    async with ScriptedWorker() as worker, WorkerSession("guessed") as session:
        client = session.client(worker.url)
        for call in (client.load(), client.model(), client.snapshot(), read(client)):
            with pytest.raises(WorkerFailedError) as failed:
                await call
            assert (failed.value.code, failed.value.busy) == ("unauthorized", False)


async def test_nobody_at_the_address_is_a_failure() -> None:
    async with WorkerSession(TOKEN) as session:
        client = session.client(f"http://127.0.0.1:{free_ports(1)[0]}")
        for call in (client.load(), read(client)):
            with pytest.raises(WorkerFailedError, match="unreachable"):
                await call


@pytest.mark.parametrize(("status", "code", "busy"), [(503, "overloaded", True), (503, "starting", True)])
async def test_a_worker_that_is_busy_says_so_and_stays_trusted(status: int, code: str, *, busy: bool) -> None:
    async with ScriptedWorker() as worker, WorkerSession(TOKEN) as session:
        worker.scripts.append(Script(refuse=(status, code, None)))
        with pytest.raises(WorkerFailedError) as failed:
            await read(session.client(worker.url))
        assert (failed.value.code, failed.value.busy) == (code, busy)


async def test_a_refused_request_carries_the_workers_words_and_field() -> None:
    async with ScriptedWorker() as worker, WorkerSession(TOKEN) as session:
        worker.scripts.append(Script(refuse=(400, "context", "tokens")))
        with pytest.raises(WorkerRefusedError) as refused:
            await read(session.client(worker.url))
        assert (refused.value.refusal.code, refused.value.refusal.param) == ("context", "tokens")


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"nonsense\n", "malformed_frame"),
        (b"\xff\xfe\n", "malformed_frame"),
        (b'{"type":"dance"}\n', "malformed_frame"),
        (b'{"type":"start"', "stream_cut"),
        (b"x" * (workers.LINE_BYTES + 70_000), "frame_too_long"),
    ],
    ids=["nonsense", "bytes", "kind", "cut", "long"],
)
async def test_lines_that_are_no_frames_end_the_stream(line: bytes, code: str) -> None:
    async with ScriptedWorker() as worker, WorkerSession(TOKEN) as session:
        worker.scripts.append(Script(raw_line=line))
        with pytest.raises(WorkerFailedError) as failed:
            await read(session.client(worker.url))
        assert failed.value.code == code


async def test_leaving_a_generation_early_is_seen_by_the_worker() -> None:
    async with ScriptedWorker() as worker, WorkerSession(TOKEN) as session:
        worker.scripts.append(Script(hold_after=(1, asyncio.Event())))
        async with session.client(worker.url).generate(REQUEST) as stream:
            await anext(stream)
        await eventually(worker.disconnect_seen.is_set)
        assert worker.disconnected == ["r1"]


async def test_cutting_a_client_ends_its_open_streams() -> None:
    async with ScriptedWorker() as worker, WorkerSession(TOKEN) as session:
        worker.scripts.append(Script(hold_before_first=asyncio.Event()))
        client = session.client(worker.url)
        async with client.generate(REQUEST) as stream:
            await anext(stream)
            client.cut()
            with pytest.raises(WorkerFailedError):
                await anext(stream)


async def test_cutting_a_client_ends_what_it_waits_to_begin() -> None:
    async with ScriptedWorker() as worker, WorkerSession(TOKEN) as session:
        worker.scripts.append(Script(hold_before_start=asyncio.Event()))
        client = session.client(worker.url)
        asking = asyncio.create_task(read(client))
        await eventually(lambda: worker.requests)
        client.cut()
        with pytest.raises(WorkerFailedError, match="stream_cut"):
            await asking
        await asyncio.wait_for(worker.disconnect_seen.wait(), 10)


async def test_connections_are_used_again() -> None:
    peers: list[Any] = []

    async def load(request: web.Request) -> web.Response:
        assert request.transport is not None
        peers.append(request.transport.get_extra_info("peername"))
        return web.Response(status=503)

    app = web.Application()
    app.router.add_get("/load", load)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    async with WorkerSession(TOKEN) as session:
        client = session.client(f"http://127.0.0.1:{runner.addresses[0][1]}")
        for _ in range(3):
            with pytest.raises(WorkerFailedError, match="http_503"):
                await client.load()
    await runner.cleanup()
    assert len(set(peers)) == 1


async def test_prompts_and_the_token_follow_no_redirect() -> None:
    elsewhere = ScriptedWorker()

    async def move(_request: web.Request) -> web.Response:
        return web.Response(status=307, headers={"location": f"{elsewhere.url}/generate"})

    app = web.Application()
    app.router.add_route("*", "/{path}", move)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    async with elsewhere, WorkerSession(TOKEN) as session:
        client = session.client(f"http://127.0.0.1:{runner.addresses[0][1]}")
        for call in (read(client), client.load(), client.release(ReleaseRequest("t", "agent"))):
            with pytest.raises(WorkerFailedError, match="http_307"):
                await call
        assert elsewhere.requests == []
    await runner.cleanup()


async def test_a_reply_beyond_its_bound_is_not_read_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "MODEL_BYTES", 100)
    async with ScriptedWorker() as worker, WorkerSession(TOKEN) as session:
        with pytest.raises(WorkerFailedError, match="reply_too_long"):
            await session.client(worker.url).model()


async def test_leases_are_asked_for_and_ended_and_a_refusal_is_told() -> None:
    asked = RetainRequest(
        tokens=[1, 2], spans=REQUEST.spans, tag="t", retention=Retention([RetentionRange(70, 5000)], "agent")
    )
    async with ScriptedWorker() as worker, WorkerSession(TOKEN) as session:
        client = session.client(worker.url)
        await client.retain(asked)
        assert worker.retained == [asked]
        await client.release(ReleaseRequest("t", "agent"))
        assert worker.released == [ReleaseRequest("t", "agent")]
        for status, kind in ((404, WorkerFailedError), (503, WorkerFailedError), (400, WorkerRefusedError)):
            worker.lease_refusal = status
            with pytest.raises(kind):
                await client.retain(asked)
            with pytest.raises(kind):
                await client.release(ReleaseRequest("t"))
        await worker.kill()
        with pytest.raises(WorkerFailedError, match="unreachable"):
            await client.retain(asked)


async def test_a_closed_session_fails_and_does_not_raise_anything_else() -> None:
    with pytest.raises(WorkerFailedError, match="session_closed"):
        await WorkerSession(TOKEN).client("http://127.0.0.1:1").load()


# -- the two declarations of one wire --------------------------------------------------------------------


def names(struct: type[msgspec.Struct]) -> dict[str, bool]:
    """Field names, and whether each must be given."""
    return {field.encode_name: field.required for field in msgspec.structs.fields(struct)}


@pytest.mark.parametrize("kind", ["ModelInfo", "Load"])
def test_what_a_worker_says_of_itself_is_declared_alike(kind: str) -> None:
    assert names(getattr(worker_wire, kind)) == names(getattr(wire, kind))


@pytest.mark.parametrize(
    "kind",
    ["SpanWire", "Sampling", "Retention", "RetentionRange", "GenerateRequest", "RetainRequest", "ReleaseRequest"],
)
def test_what_a_worker_is_asked_is_declared_alike(kind: str) -> None:
    ours, theirs = getattr(worker_wire, kind), getattr(wire, kind)
    assert names(ours).keys() == names(theirs).keys()
    for field in msgspec.structs.fields(theirs):
        if not field.required and field.encode_name != "deadline_ms" and field.encode_name != "tag":
            assert field.default == next(f.default for f in msgspec.structs.fields(ours) if f.name == field.name)


def test_the_worker_reads_what_we_send() -> None:
    sent = msgspec.json.encode(REQUEST)
    read_back = msgspec.json.decode(sent, type=wire.GenerateRequest)
    assert (read_back.tokens, read_back.tag, read_back.n) == (REQUEST.tokens, "t", 1)
    assert read_back.sampling.max_tokens == 5
    assert read_back.spans[0].namespace == "ab" * 32


def test_we_read_the_frames_that_the_worker_sends() -> None:
    sent: list[wire.Frame] = [
        wire.Start(5, wire.Cached(device=16), 1.5),
        wire.Delta(0, "a", [1], [wire.TokenLogprob(1, -0.5, [(1, -0.5)])]),
        wire.Delta(0, "b", [2]),
        wire.Finish(0, "stop", 2, "END"),
        wire.End(5, 2, wire.Timings(1.0, 2.0, 3.0), wire.Occupancy(1, 2, 3, 4, 5)),
        wire.ErrorFrame("internal", "no"),
    ]
    kinds = [frames.StartFrame, DeltaFrame, DeltaFrame, FinishFrame, EndFrame, frames.ErrorFrame]
    for frame, kind in zip(sent, kinds, strict=True):
        raw = msgspec.json.encode(frame)
        ours = msgspec.json.decode(raw, type=Frame)
        assert type(ours) is kind
        assert msgspec.json.decode(msgspec.json.encode(ours)) == msgspec.json.decode(raw)
