"""A request's body, bounded in bytes and in time while it is read."""

import asyncio

from starlette.types import Receive, Scope

from gateway.disconnect import ClientGoneError
from gateway.errors import ApiError, TooLargeError

BODY_SECONDS = 60.0


def _too_large(limit: int) -> TooLargeError:
    return TooLargeError(f"The request body is larger than {limit} bytes.")


def _declared_length(scope: Scope) -> int:
    """Content-Length, 0 when absent; the HTTP parser has already refused one that is not a number."""
    for name, value in scope["headers"]:
        if name == b"content-length":
            return int(value)
    return 0


async def read_body(scope: Scope, receive: Receive, limit: int, seconds: float = BODY_SECONDS) -> bytes:
    """The whole body: at most `limit` bytes, complete within `seconds`.

    Raises TooLargeError (at once when the length is declared, else as soon as the limit is passed), ApiError 408
    or ClientGoneError.
    """
    if _declared_length(scope) > limit:
        raise _too_large(limit)
    try:
        async with asyncio.timeout(seconds):
            return await _collect(receive, limit)
    except TimeoutError:
        message = f"The request body did not arrive within {seconds:g} seconds."
        raise ApiError(408, message, type="invalid_request_error", code="request_timeout") from None


async def _collect(receive: Receive, limit: int) -> bytes:
    pieces: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        piece: bytes = message.get("body", b"")
        size += len(piece)
        if size > limit:
            raise _too_large(limit)
        pieces.append(piece)
        if not message.get("more_body", False):
            return b"".join(pieces)
