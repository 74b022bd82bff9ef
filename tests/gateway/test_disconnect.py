"""Work for a client, and a client that goes."""

import asyncio

import pytest
from starlette.types import Message

from gateway.disconnect import ClientGoneError, while_connected


class Client:
    """The receiving end of a request whose body has been read."""

    def __init__(self) -> None:
        self.gone = asyncio.Event()

    async def receive(self) -> Message:
        await self.gone.wait()
        return {"type": "http.disconnect"}


async def test_work_that_ends_first_is_let_be() -> None:
    client, done = Client(), []

    async def work() -> None:
        await asyncio.sleep(0)
        done.append(1)

    await while_connected(client.receive, work())
    assert done == [1]
    assert len(asyncio.all_tasks()) == 1


async def test_a_client_that_goes_ends_the_work_before_we_are_told() -> None:
    client, cleaned = Client(), []

    async def work() -> None:
        try:
            client.gone.set()
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append(1)

    with pytest.raises(ClientGoneError):
        await while_connected(client.receive, work())
    assert cleaned == [1]


async def test_what_the_work_raises_comes_out() -> None:
    async def work() -> None:
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        await while_connected(Client().receive, work())


async def test_being_cancelled_from_outside_cancels_the_work() -> None:
    started, cleaned = asyncio.Event(), []

    async def work() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append(1)

    outer = asyncio.create_task(while_connected(Client().receive, work()))
    await started.wait()
    outer.cancel()
    with pytest.raises(asyncio.CancelledError):
        await outer
    assert cleaned == [1]
