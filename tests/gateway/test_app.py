"""The surface of the process: paths, methods, bounds, envelopes."""

import asyncio
import gc
import io
import json
import logging
from typing import Any

import aiohttp
import pytest

from gateway import logs
from gateway.prepare import Preparation
from gateway.settings import Limits
from tests.gateway.scripted_worker import ScriptedWorker
from tests.gateway.stack import Stack, running

MESSAGES = [{"role": "user", "content": "Where does the salt go?"}]
MODELS_PATH = "/v1/models"


async def error_of(response: aiohttp.ClientResponse) -> dict[str, Any]:
    """The one error object of an envelope."""
    body = await response.json()
    assert list(body) == ["error"]
    assert sorted(body["error"]) == ["code", "message", "param", "type"]
    error: dict[str, Any] = body["error"]
    return error


async def raw(stack: Stack, request: bytes) -> bytes:
    """Bytes to the gateway's socket, and what comes back until it closes."""
    reader, writer = await asyncio.open_connection(stack.settings.host, stack.settings.port)
    writer.write(request)
    try:
        return await asyncio.wait_for(reader.read(), 60)
    finally:
        writer.close()


async def test_unknown_paths_and_wrong_methods_are_answered_in_the_envelope() -> None:
    async with running() as stack:
        unknown = await stack.get("/v2/models")
        assert (unknown.status, (await error_of(unknown))["code"]) == (404, "not_found")
        wrong = await stack.get("/v1/chat/completions")
        assert (wrong.status, wrong.headers["allow"]) == (405, "POST")
        assert (await error_of(wrong))["code"] == "method_not_allowed"
        assert (await stack.get("/v1/models/")).status == 401  # no redirect: it would be built from the Host header


async def test_every_reply_carries_a_request_id_and_no_server_header() -> None:
    async with running() as stack:
        replies = [await stack.get(path) for path in ("/health", "/nowhere", MODELS_PATH, "/admin")]
        ids = {reply.headers["x-request-id"] for reply in replies}
        assert len(ids) == 4
        assert all("server" not in reply.headers for reply in replies)


async def test_health_and_readiness_are_open_and_ready_means_indexed() -> None:
    worker = ScriptedWorker()
    worker.state = "starting"
    async with running(worker, wait=False) as stack:
        assert (await stack.get("/health")).status == 200
        assert (await stack.get("/ready")).status == 503
        worker.state = "ready"
        await stack.ready()
        assert await (await stack.get("/ready")).json() == {"status": "ready"}


async def test_only_health_readiness_and_the_static_page_are_open() -> None:
    async with running() as stack:
        guarded = ["/v1/models", "/v1/models/tiny", "/metrics", "/admin/api/live", "/admin/api/recent"]
        guarded += ["/admin/api/workers", "/admin/api/hit-rates"]
        for path in guarded:
            response = await stack.get(path)
            assert (path, response.status) == (path, 401)
            assert (await error_of(response))["code"] == "invalid_api_key"


async def test_a_host_header_does_not_move_the_path_past_the_key() -> None:
    async with running() as stack:
        body = b'{"model":"tiny","messages":[{"role":"user","content":"hi"}]}'
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x/health?\r\nConnection: close\r\n"
        answer = await raw(stack, head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        assert answer.startswith(b"HTTP/1.1 401 ")
        assert stack.workers[0].requests == []


async def test_models_are_listed_with_what_the_gateway_knows() -> None:
    async with running() as stack:
        client = stack.client()
        (model,) = (await client.models.list()).data
        assert (model.id, model.object, model.owned_by) == ("tiny", "model", "saltway")
        known = model.to_dict()["saltway"]
        assert isinstance(known, dict)
        assert (known["context_length"], known["block_size"], known["dtype"]) == (2048, 16, "float32")
        assert known["template"] == "chatml-hermes"
        assert (await client.models.retrieve("tiny")).id == "tiny"
        missing = await stack.get("/v1/models/gpt-5", stack.keys.acme)
        assert (missing.status, (await error_of(missing))["code"]) == (404, "model_not_found")


async def test_a_declared_body_over_the_limit_is_refused_before_it_is_read() -> None:
    async with running(limits=Limits(body_bytes=2048)) as stack:
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: here\r\nContent-Length: 20971520\r\n"
        reader, writer = await asyncio.open_connection(stack.settings.host, stack.settings.port)
        writer.write(head + b"Authorization: Bearer " + stack.keys.acme.encode() + b"\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 413 ")
        writer.close()
        (row,) = await stack.ledger(1)
        assert (row.status, row.error_code, row.tenant_id) == (413, "request_too_large", "acme")


async def test_a_20_mib_body_is_refused_and_the_client_gets_to_read_why() -> None:
    async with running() as stack:
        body = json.dumps({"model": "tiny", "messages": MESSAGES, "padding": "x" * (20 << 20)}).encode()

        async def pieces() -> Any:  # no length declared: sent chunked
            for start in range(0, len(body), 1 << 20):
                yield body[start : start + (1 << 20)]

        for data in (io.BytesIO(body), pieces()):
            auth = {"authorization": f"Bearer {stack.keys.acme}"}
            async with stack.http.post(f"{stack.url}/v1/chat/completions", data=data, headers=auth) as response:
                assert response.status == 413
                assert (await error_of(response))["code"] == "request_too_large"
        assert (await stack.post({"model": "tiny", "messages": MESSAGES})).status == 200


async def test_headers_are_bounded_and_broken_http_is_answered_in_the_envelope() -> None:
    async with running() as stack:
        long = b"GET /health HTTP/1.1\r\nHost: here\r\nX-Long: " + b"a" * (80 * 1024)
        for request in (long, long + b"\r\n\r\n"):
            answer = await raw(stack, request)
            assert answer.startswith(b"HTTP/1.1 431 ")
            assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "headers_too_large"
        answer = await raw(stack, b"THIS IS NOT HTTP\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "invalid_http"


BAD_BODIES: list[tuple[bytes, str | None]] = [
    (b"", None),
    (b"{", None),
    (b"\xff\xfe", None),
    (b"[]", None),
    (b"null", None),
    (b"[" * 100_000, None),
    (b'{"model": "tiny"}', "messages"),
    (b'{"messages": []}', "model"),
    (b'{"model": 7, "messages": []}', "model"),
    (b'{"model": "tiny", "messages": []}', "messages"),
    (b'{"model": "tiny", "messages": [{"role": "user", "content": 5}]}', "messages[0].content"),
    (b'{"model": "tiny", "messages": [{"role": "user", "content": "\\ud800"}]}', "messages[0].content"),
    (b'{"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "n": 0}', "n"),
    (b'{"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "n": 9}', "n"),
    (b'{"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "temperature": NaN}', None),
    (b'{"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "seed": 1e400}', "seed"),
    (b'{"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "max_tokens": -1}', "max_tokens"),
]


async def test_a_bad_body_is_a_400_that_names_the_field() -> None:
    async with running() as stack:
        for body, param in BAD_BODIES:
            response = await stack.post(body)
            error = await error_of(response)
            assert (body[:80], response.status, error["param"]) == (body[:80], 400, param)
            assert error["type"] == "invalid_request_error"
        rows = await stack.ledger(len(BAD_BODIES))
        assert {row.status for row in rows} == {400}
        assert (await stack.post({"model": "tiny", "messages": MESSAGES})).status == 200


async def test_an_unexpected_exception_tells_the_client_nothing_and_the_log_its_class(
    monkeypatch: pytest.MonkeyPatch, log_lines: io.StringIO
) -> None:
    async def broken(*_: object) -> None:
        raise RuntimeError("secret words of a prompt")

    async with running() as stack:
        monkeypatch.setattr(Preparation, "prepare", broken)
        response = await stack.post({"model": "tiny", "messages": MESSAGES})
        assert response.status == 500
        assert (await error_of(response))["code"] == "internal_error"
        assert "secret words" not in await response.text()
        (row,) = await stack.ledger(1)
        assert (row.status, row.error_code) == (500, "internal_error")
    (line,) = [line for line in map(json.loads, log_lines.getvalue().splitlines()) if line["event"] == "unexpected"]
    assert (line["error"], line["request_id"]) == ("RuntimeError", response.headers["x-request-id"])
    assert line["where"].startswith("test_app.py:")
    assert "secret words" not in log_lines.getvalue()


async def test_requests_are_logged_once_each_without_prompt_text_or_keys(log_lines: io.StringIO) -> None:
    async with running() as stack:
        said = "a sentence that must stay private"
        for stream in (False, True):
            body = {"model": "tiny", "messages": [{"role": "user", "content": said}], "stream": stream}
            assert (await stack.post(body)).status == 200
        await stack.post({"model": said, "messages": MESSAGES})
        await stack.ledger(3)
    text = log_lines.getvalue()
    lines = [line for line in map(json.loads, text.splitlines()) if line["event"] == "request"]
    assert [line["status"] for line in lines] == [200, 200, 404]
    assert {line["tenant"] for line in lines} == {"acme"}
    assert lines[0]["prompt_tokens"] > 0
    for secret in (said, "Hello, world", stack.keys.acme, stack.keys.acme[-43:], "worker-token"):
        assert secret not in text


def test_a_library_line_is_json_and_loses_the_text_of_its_exception() -> None:
    stream = io.StringIO()
    logs.configure("info", stream)
    try:
        raise ValueError("private")
    except ValueError:
        logging.getLogger("elsewhere").exception("it broke")
    line = json.loads(stream.getvalue())
    assert (line["event"], line["error"], line["level"]) == ("it broke", "ValueError", "error")
    assert "private" not in stream.getvalue()


async def test_a_task_that_nobody_awaited_is_a_line_without_its_exceptions_text(log_lines: io.StringIO) -> None:
    async def fail() -> None:
        raise ValueError("private")

    task = asyncio.create_task(fail())
    await asyncio.sleep(0)
    del task
    gc.collect()
    (line,) = map(json.loads, log_lines.getvalue().splitlines())
    assert (line["event"], line["error"]) == ("Task exception was never retrieved", "ValueError")
    assert "private" not in log_lines.getvalue()


def test_what_the_ledger_adds_to_its_lines_is_kept(log_lines: io.StringIO) -> None:
    logging.getLogger("saltway.tenants.ledger").warning("waits", extra={"rows": 3, "retry_s": 0.5})
    line = json.loads(log_lines.getvalue())
    assert (line["event"], line["rows"], line["retry_s"]) == ("waits", 3, 0.5)
