"""The bounds below ASGI, on a real socket."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from gateway import protocol
from gateway.app import Server
from gateway.protocol import BoundedHttpProtocol
from gateway.up.ports import free_ports
from tests.gateway.stack import eventually


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers at once, whatever is still being sent; /echo with what was sent; /abort drops the connection instead."""
    if scope["path"] == "/abort":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        scope["state"]["abort"]()
        return
    said = (await receive())["body"] if scope["path"] == "/echo" else b"ok"
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": said})


@asynccontextmanager
async def serving() -> AsyncIterator[int]:
    (port,) = free_ports(1)
    config = uvicorn.Config(
        application, port=port, http=BoundedHttpProtocol, lifespan="off", log_config=None, timeout_graceful_shutdown=1
    )
    server = Server(config)
    task = asyncio.create_task(server.serve())
    await eventually(lambda: server.started)
    yield port
    server.should_exit = True
    await task


async def exchange(port: int, *pieces: bytes) -> bytes:
    """Send pieces, one after the other; return all that comes back until the server closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for piece in pieces:
        writer.write(piece)
        await writer.drain()
    answer = await asyncio.wait_for(reader.read(), 60)
    writer.close()
    return answer


async def test_a_connection_that_says_nothing_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEADER_SECONDS", 0.05)
    async with serving() as port:
        assert await exchange(port) == b""


async def test_headers_that_never_end_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEADER_SECONDS", 0.05)
    async with serving() as port:
        assert await exchange(port, b"GET / HTTP/1.1\r\nHost: x\r\n") == b""


async def test_a_slow_body_is_not_the_headers_business(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEADER_SECONDS", 0.5)
    async with serving() as port:
        head = b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nConnection: close\r\n\r\n"
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head)
        await asyncio.sleep(1.0)
        writer.write(b"hi")
        assert (await reader.read()).endswith(b"\r\n\r\nhi")
        writer.close()


async def test_several_requests_share_a_connection_and_their_headers_do_not_add_up() -> None:
    large = b"GET / HTTP/1.1\r\nHost: x\r\nX-Pad: " + b"a" * 40_000 + b"\r\n"
    async with serving() as port:
        answer = await exchange(port, large + b"\r\n", large + b"\r\n", large + b"Connection: close\r\n\r\n")
        assert answer.count(b"HTTP/1.1 200") == 3


async def test_a_body_nobody_wants_is_dropped_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "DISCARD_BYTES", 1 << 20)
    async with serving() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 999999999\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")

        async def go_on() -> None:
            while True:
                writer.write(b"x" * 65536)
                await writer.drain()

        with pytest.raises(ConnectionError):
            await go_on()
        writer.close()


async def test_an_application_can_drop_its_connection() -> None:
    async with serving() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /abort HTTP/1.1\r\nHost: x\r\n\r\n")
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(1 << 20)
        writer.close()
