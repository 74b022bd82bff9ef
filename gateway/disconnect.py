"""Noticing that a client has gone, while work is done for it."""

import asyncio
from collections.abc import Coroutine

from starlette.types import Receive


class ClientGoneError(Exception):
    """The client closed its connection before its reply was complete."""


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue


async def while_connected(receive: Receive, work: Coroutine[None, None, None]) -> None:
    """Run `work`; cancel it and raise ClientGoneError as soon as the client disconnects.

    Must be called after the body was read: it consumes `receive`. Work that has already ended wins over a disconnect
    seen in the same moment. Whatever happens, `work` has ended (its `finally` blocks have run) on return.
    """
    task = asyncio.ensure_future(work)
    watch = asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientGoneError
        task.result()
    finally:
        watch.cancel()
        if not task.done():
            task.cancel()
        await asyncio.gather(task, watch, return_exceptions=True)
