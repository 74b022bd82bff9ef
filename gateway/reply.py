"""The way back to the client: headers once, then bytes, each send under a deadline."""

import asyncio

import msgspec
from starlette.types import Send

Headers = list[tuple[bytes, bytes]]

JSON = b"application/json"
EVENTS = b"text/event-stream"
SEND_SECONDS = 20.0


class SlowReaderError(Exception):
    """The client has not read for a whole send deadline; its connection is to be dropped."""


class Reply:
    """One HTTP response.

    The server's write buffer is the only buffer: when it is full a send waits, the worker's stream is not read on, and
    past `send_seconds` the reader is cut. So a stopped reader holds a bounded amount of memory for a bounded time.

    started     its headers have been handed over
    completed   its last byte has been handed over
    """

    def __init__(self, send: Send, send_seconds: float = SEND_SECONDS) -> None:
        self._send = send
        self._seconds = send_seconds
        self.started = False
        self.completed = False

    async def whole(self, status: int, body: bytes, headers: Headers, content_type: bytes = JSON) -> None:
        """A complete response with a known length."""
        await self._start(status, [*headers, (b"content-type", content_type), (b"content-length", b"%d" % len(body))])
        await self._write(body, more=False)

    async def nothing(self) -> None:
        """204: done, and nothing to say."""
        await self._start(204, [])
        await self._write(b"", more=False)

    async def open_events(self, headers: Headers) -> None:
        """Begin a stream of server-sent events."""
        fixed = [(b"content-type", EVENTS + b"; charset=utf-8"), (b"cache-control", b"no-cache")]
        # Proxies of the nginx family hold back a stream unless told otherwise.
        await self._start(200, [*headers, *fixed, (b"x-accel-buffering", b"no")])

    async def events(self, data: bytes) -> None:
        """Pass on server-sent events, already framed."""
        if data:
            await self._write(data, more=True)

    async def close_events(self, data: bytes = b"") -> None:
        await self._write(data, more=False)

    async def _start(self, status: int, headers: Headers) -> None:
        self.started = True
        await self._within({"type": "http.response.start", "status": status, "headers": headers})

    async def _write(self, body: bytes, *, more: bool) -> None:
        await self._within({"type": "http.response.body", "body": body, "more_body": more})
        self.completed = not more

    async def _within(self, message: dict[str, object]) -> None:
        try:
            async with asyncio.timeout(self._seconds):
                await self._send(message)
        except TimeoutError:
            raise SlowReaderError from None


async def send_json(send: Send, value: object, status: int = 200, headers: Headers | None = None) -> None:
    """Answer with `value` as JSON."""
    await Reply(send).whole(status, msgspec.json.encode(value), headers or [])
