"""The outermost layer: a request id on every reply, and every failure as one OpenAI error envelope."""

import asyncio
import secrets
from collections.abc import Callable

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.typing import FilteringBoundLogger

from gateway.disconnect import ClientGoneError
from gateway.errors import ApiError, UnavailableError, envelope, last_events
from gateway.logs import get_logger, where
from gateway.reply import EVENTS, Reply, SlowReaderError
from tenants import StoreUnavailableError


def new_request_id() -> str:
    """Made here, never taken from a client: the ledger drops a second row of the same id."""
    return f"req_{secrets.token_hex(12)}"


class Surface:
    """Puts `request_id` into the scope's state and `x-request-id` on the reply, and lets no exception through."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._log: FilteringBoundLogger = get_logger("surface")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        reply = _Identified(send, new_request_id())
        scope.setdefault("state", {})["request_id"] = reply.request_id
        try:
            await self._answered(scope, receive, reply)
        except ClientGoneError:
            return None  # nobody is left to answer
        except (SlowReaderError, _HalfWayError):
            await _drop(scope, receive)
        except asyncio.CancelledError:  # by the server alone: it stops, and has waited for as long as it does
            message = "The gateway is stopping; send the request again."
            await reply.fail(UnavailableError(message, code="shutting_down", headers={"retry-after": "1"}))

    async def _answered(self, scope: Scope, receive: Receive, reply: "_Identified") -> None:
        """Run the application, and answer for it when it raises."""
        try:
            await self._app(scope, receive, reply)
        except (ClientGoneError, SlowReaderError):
            raise
        except Exception as error:
            failure = self._as_api_error(error, reply.request_id)
            if reply.started:
                raise _HalfWayError from error
            await reply.fail(failure)

    def _as_api_error(self, error: Exception, request_id: str) -> ApiError:
        if isinstance(error, ApiError):
            return error
        if isinstance(error, StoreUnavailableError):
            message = "The database cannot be reached; try again."
            return UnavailableError(message, code="store_unavailable", headers={"retry-after": "1"})
        # The text of an unforeseen exception may quote a prompt: only its class and place are told, only to the log.
        self._log.error("unexpected", request_id=request_id, error=type(error).__name__, where=where(error))
        return ApiError(500, "The gateway failed on this request.", type="server_error", code="internal_error")


class _HalfWayError(Exception):
    """The application failed when a part of its reply had been sent."""


class _Identified:
    """The server's `send`, with the request id on the reply's headers.

    events   the reply is a stream of them; what is sent of it ends between two
    """

    def __init__(self, send: Send, request_id: str) -> None:
        self._send = send
        self.request_id = request_id
        self.started = False
        self.events = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            self.events = any(value.startswith(EVENTS) for _, value in message["headers"])
            message = {**message, "headers": [*message["headers"], (b"x-request-id", self.request_id.encode())]}
        await self._send(message)

    async def fail(self, failure: ApiError) -> None:
        """An error in place of the reply, or at the end of a stream; any other that has begun stays cut."""
        if not self.started:
            headers = [(name.lower().encode(), value.encode()) for name, value in failure.headers.items()]
            await Reply(self).whole(failure.status, envelope(failure), headers)
        elif self.events:
            await Reply(self).close_events(last_events(failure))


async def _drop(scope: Scope, receive: Receive) -> None:
    """End the connection of a reply that cannot be completed, with whatever the client has left unread."""
    abort: Callable[[], None] = scope["state"]["abort"]
    abort()
    while (await receive())["type"] != "http.disconnect":
        continue


_MESSAGES = {
    404: "There is nothing at this path; what is served is below /v1, such as /v1/chat/completions.",
    405: "This path does not take that method; the header Allow names those that it takes.",
}
_CODES = {404: "not_found", 405: "method_not_allowed"}


async def on_http_exception(_request: Request, error: Exception) -> Response:
    """What the router raises (404, 405), in the envelope, with its headers (Allow)."""
    assert isinstance(error, HTTPException)
    failure = ApiError(
        error.status_code,
        _MESSAGES.get(error.status_code, "The request was refused."),
        type="invalid_request_error",
        code=_CODES.get(error.status_code),
    )
    headers = dict(error.headers or {})
    return Response(envelope(failure), error.status_code, headers, media_type="application/json")
