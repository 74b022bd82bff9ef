"""A small worker that publishes, replays, hands out snapshots, and dies; and who follows it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import zmq
import zmq.asyncio

from cacheplane.index import PrefixIndex
from cacheplane.stream import Phase
from cacheplane.subscriber import Subscriber
from cacheplane.wire import (
    Batch,
    BlockRemoved,
    BlockStored,
    Event,
    Message,
    Snapshot,
    SnapshotBlock,
    Tier,
    decode_replay_request,
    encode_batch,
    encode_message,
    encode_replay,
)
from tests.cacheplane.oracle import keys

ANY_PORT = "tcp://127.0.0.1:0"
A, B, C = (name * 16 for name in (b"a", b"b", b"c"))


class RealWorker:
    """XPUB, a PUB that sees who subscribes, and ROUTER on loopback.

    `lose` keeps a message off the wire, as an overflowing queue would.
    """

    def __init__(
        self, context: zmq.asyncio.Context, epoch: int | None = 1, pub: str = ANY_PORT, replay: str = ANY_PORT
    ) -> None:
        self.epoch = epoch
        self.cache: list[bytes] = []
        self.published: list[Message] = []
        self.snapshots = 0
        self._pub, self._router = context.socket(zmq.XPUB), context.socket(zmq.ROUTER)
        for socket, address in ((self._pub, pub), (self._router, replay)):
            socket.setsockopt(zmq.LINGER, 0)
            socket.bind(address)
        self.pub, self.replay = (str(s.getsockopt_string(zmq.LAST_ENDPOINT)) for s in (self._pub, self._router))
        self._answers = asyncio.ensure_future(self._answer())

    async def subscribed(self) -> None:
        """Until somebody's subscription has come; what is published before goes nowhere."""
        assert await self._pub.recv() == b"\x01kv"

    async def publish(self, *events: Event, lose: bool = False) -> None:
        for event in events:
            if isinstance(event, BlockStored):
                self.cache += event.hashes
            if isinstance(event, BlockRemoved):
                self.cache = [name for name in self.cache if name not in event.hashes]
        await self.send(encode_batch(Batch(0.0, list(events), None, self.epoch)), lose=lose)

    async def send(self, payload: bytes, *, lose: bool = False) -> None:
        self.published.append(Message(b"kv", len(self.published), payload))
        if not lose:
            await self._pub.send_multipart(encode_message(self.published[-1].seq, payload))

    async def snapshot(self) -> Snapshot:
        self.snapshots += 1
        blocks = [SnapshotBlock(name, None, Tier.DEVICE) for name in self.cache]
        return Snapshot(self.epoch or 0, len(self.published) - 1, 16, blocks)

    async def _answer(self) -> None:
        while True:
            asker, start = decode_replay_request(await self._router.recv_multipart())
            for message in [kept for kept in self.published if kept.seq >= start]:
                await self._router.send_multipart([asker, *encode_replay(message)])
            await self._router.send_multipart([asker, *encode_replay(None)])

    async def die(self) -> None:
        self._answers.cancel()
        with suppress(asyncio.CancelledError):
            await self._answers
        self._pub.close(linger=0)
        self._router.close(linger=0)


@asynccontextmanager
async def following(
    index: PrefixIndex,
    worker: RealWorker,
    fetch: Callable[[], Awaitable[Snapshot]] | None = None,
    *,
    replay: bool = True,
) -> AsyncIterator[Subscriber]:
    """From its first snapshot on, when it also hears what the worker publishes."""
    listener = Subscriber("w0", worker.pub, worker.replay if replay else None, index, fetch or worker.snapshot)
    async with running(listener):
        await worker.subscribed()
        yield listener


@asynccontextmanager
async def running(listener: Subscriber) -> AsyncIterator[None]:
    task = asyncio.ensure_future(listener.run())
    try:
        await eventually(lambda: listener.state.phase is Phase.LIVE)
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def eventually(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110  # sockets move the state, no event of ours does
            await asyncio.sleep(0.005)


def stored(*names: bytes) -> BlockStored:
    return BlockStored(list(names), None, 16)


def held(index: PrefixIndex) -> list[bytes]:
    return [name for name in (A, B, C) if index.match(keys([name]))]
