"""HTTP/1.1 framing with bounds: what uvicorn's httptools protocol leaves open.

httptools grows a header without limit, a connection that never sends its first byte is never closed, and a response
that was abandoned half-way waits for its reader for ever. All three are closed here, below the ASGI application.
"""

import asyncio
from typing import Any

import msgspec
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

HEADER_BYTES = 64 * 1024
HEADER_SECONDS = 15.0
DISCARD_BYTES = 64 * 1024 * 1024


class BoundedHttpProtocol(HttpToolsProtocol):
    """One client connection.

    Request line and headers are at most HEADER_BYTES (431) and complete within HEADER_SECONDS of the connection's or
    the request's first byte. A body that nobody wants any more (its request was refused) is read and dropped up to
    DISCARD_BYTES, so that the client gets to read the refusal; then the connection is cut.
    `scope["state"]["abort"]` drops the connection at once, with whatever a stopped reader left unsent.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.header_bytes = 0
        self.in_headers = True
        self.discarded_bytes = 0
        self.header_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._headers_arrived()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.in_headers:
            if self.header_timer is None:
                self._await_headers()
            self.header_bytes += len(data)
        super().data_received(data)
        if self.in_headers and self.header_bytes > HEADER_BYTES:
            self._refuse(431, "The request line and headers are too large.", "headers_too_large")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["state"]["abort"] = self.transport.abort
        self.discarded_bytes = 0

    def on_headers_complete(self) -> None:
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > HEADER_BYTES:
            return
        self.in_headers = False
        self.header_bytes = 0
        self._headers_arrived()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if self.in_headers:
            return
        if self.cycle.response_complete:
            self.discarded_bytes += len(body)
            if self.discarded_bytes > DISCARD_BYTES:
                self.transport.abort()
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self.in_headers:
            return
        self.in_headers = True
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, msg, "invalid_http")

    def _await_headers(self) -> None:
        self.header_timer = self.loop.call_later(HEADER_SECONDS, self.transport.close)

    def _headers_arrived(self) -> None:
        if self.header_timer is not None:
            self.header_timer.cancel()
            self.header_timer = None

    def _refuse(self, status: int, message: str, code: str) -> None:
        """Answer below ASGI, in the OpenAI envelope, and close."""
        if self.transport.is_closing():
            return
        error = {"message": message, "type": "invalid_request_error", "param": None, "code": code}
        body = msgspec.json.encode({"error": error})
        head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
        self._headers_arrived()
        self.transport.write(STATUS_LINE[status] + head + body)
        self.transport.close()
