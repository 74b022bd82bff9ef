"""What tests over real sockets share."""

from collections.abc import AsyncIterator

import pytest
import zmq.asyncio


@pytest.fixture
async def context() -> AsyncIterator[zmq.asyncio.Context]:
    with zmq.asyncio.Context() as context:
        yield context
