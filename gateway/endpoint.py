"""Endpoints that read no body, as routes."""

from collections.abc import Awaitable, Callable

from starlette.routing import Route
from starlette.types import Receive, Scope, Send

Respond = Callable[[Scope, Send], Awaitable[None]]


class Endpoint:
    """An ASGI application around one coroutine. (A bare function would be taken by starlette for its own kind.)"""

    def __init__(self, respond: Respond) -> None:
        self._respond = respond

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        await self._respond(scope, send)


def delete(path: str, respond: Respond) -> Route:
    """A route for DELETE."""
    return Route(path, Endpoint(respond), methods=["DELETE"])


def get(path: str, respond: Respond) -> Route:
    """A route for GET and HEAD."""
    return Route(path, Endpoint(respond), methods=["GET"])
