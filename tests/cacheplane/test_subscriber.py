"""The subscriber over real sockets: a small worker that publishes, replays, hands out snapshots, and dies."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import msgspec
import pytest
import zmq
import zmq.asyncio

from cacheplane import subscriber
from cacheplane.index import PrefixIndex
from cacheplane.stream import Phase
from cacheplane.subscriber import Pace, Subscriber, bind
from cacheplane.wire import (
    Batch,
    BlockRemoved,
    BlockStored,
    Event,
    Message,
    Snapshot,
    SnapshotBlock,
    Tier,
    decode_batch,
    decode_replay_request,
    decode_snapshot,
    encode_batch,
    encode_message,
    encode_replay,
)
from tests.cacheplane.oracle import keys
from tests.cacheplane.recordings import recorded

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


@pytest.fixture
async def context() -> AsyncIterator[zmq.asyncio.Context]:
    with zmq.asyncio.Context() as context:
        yield context


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


async def test_it_joins_by_snapshot_and_then_follows(context: zmq.asyncio.Context) -> None:
    index, worker = PrefixIndex(), RealWorker(context)
    await worker.publish(stored(A))
    async with following(index, worker) as listener:
        assert held(index) == [A]
        assert index.synced("w0")
        await worker.publish(stored(B), BlockRemoved([A]))
        await eventually(lambda: held(index) == [B])
        assert (listener.connected, listener.counters.snapshots, listener.counters.gaps) == (True, 1, 0)
    assert not listener.connected
    assert not index.synced("w0")
    await worker.die()


@pytest.mark.parametrize(
    ("answers", "replay", "snapshots", "failed"),
    [(True, True, 1, 0), (True, False, 2, 0), (False, True, 2, 1)],
    ids=["is replayed", "without replay costs a snapshot", "with a replay that is never answered costs a snapshot"],
)
async def test_a_lost_message(
    context: zmq.asyncio.Context,
    monkeypatch: pytest.MonkeyPatch,
    answers: bool,
    replay: bool,
    snapshots: int,
    failed: int,
) -> None:
    if not answers:
        monkeypatch.setattr(subscriber, "REPLAY_SECONDS", 0.05)
    index, worker = PrefixIndex(), RealWorker(context)
    async with following(index, worker, replay=replay) as listener:
        if not answers:
            worker._answers.cancel()
        await worker.publish(stored(A), lose=True)
        await worker.publish(stored(B))
        await eventually(lambda: held(index) == [A, B] and index.synced("w0"))
        counters = listener.counters
        assert (counters.gaps, counters.snapshots, counters.replays_failed) == (1, snapshots, failed)
    await worker.die()


async def test_a_lost_last_message_is_found_in_the_silence_after_it(
    context: zmq.asyncio.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscriber, "QUIET_SECONDS", 0.05)
    index, worker = PrefixIndex(), RealWorker(context)
    async with following(index, worker):
        await worker.publish(stored(A), lose=True)
        await eventually(lambda: held(index) == [A])
        await worker.publish(stored(B))
        await eventually(lambda: held(index) == [A, B])
    await worker.die()


class Turns:
    """How often others had their turn, counted while it is entered."""

    count = 0

    async def __aenter__(self) -> "Turns":
        self._counting = asyncio.ensure_future(self._count())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._counting.cancel()
        with suppress(asyncio.CancelledError):
            await self._counting

    async def _count(self) -> None:
        while True:
            self.count += 1
            await asyncio.sleep(0)


async def test_others_have_their_turn_while_a_long_replay_comes_in_and_is_applied(context: zmq.asyncio.Context) -> None:
    index, worker = PrefixIndex(), RealWorker(context)
    async with following(index, worker) as listener:
        for number in range(1_000):
            await worker.publish(stored(bytes([number % 256, number // 256]) * 8), lose=True)
        async with Turns() as receiving:
            messages = await subscriber._ask_replay(context, worker.replay, 0)
        assert len(messages) == 1_000
        assert receiving.count >= len(messages) // subscriber.RECEIVED_AT_ONCE
        async with Turns() as applying:
            for message in messages:
                await listener._replay_one(message)
        assert listener.counters.applied == 1_000 <= applying.count
        assert index.blocks("w0") == 1_000
    await worker.die()


async def test_others_have_their_turn_while_a_large_message_is_applied(context: zmq.asyncio.Context) -> None:
    index, worker = PrefixIndex(), RealWorker(context)
    async with following(index, worker) as listener:
        names = [number.to_bytes(16, "little") for number in range(1, 50_001)]
        async with Turns() as turns:
            await listener._hear(context, encode_message(0, encode_batch(Batch(0.0, [stored(*names)], None, 1))))
        assert turns.count > len(names) // 512
        assert index.blocks("w0") == len(names)
    await worker.die()


async def test_a_message_beyond_the_bound_costs_the_connection_and_a_snapshot(
    context: zmq.asyncio.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscriber, "MAX_PAYLOAD_BYTES", 1_000)
    index, worker = PrefixIndex(), RealWorker(context)
    async with following(index, worker) as listener:
        worker.cache.append(A)
        await worker.send(bytes(2_000))
        await eventually(lambda: held(index) == [A] and index.synced("w0"))
        assert (listener.counters.disconnects, listener.counters.applied) == (1, 0)
    await worker.die()


async def test_an_address_that_is_none_costs_a_snapshot_for_each_gap(context: zmq.asyncio.Context) -> None:
    index, worker = PrefixIndex(), RealWorker(context)
    worker.replay = "tcp://no port at all"
    async with following(index, worker) as listener:
        await worker.publish(stored(A), lose=True)
        await worker.publish(stored(B))
        await eventually(lambda: held(index) == [A, B] and index.synced("w0"))
        assert (listener.counters.replays_failed, listener.counters.snapshots) == (1, 2)
    await worker.die()


async def test_a_snapshot_with_a_piece_that_cannot_be_read_is_asked_for_again(context: zmq.asyncio.Context) -> None:
    index, worker = PrefixIndex(), RealWorker(context)
    spoiled = 2

    async def fetch() -> Snapshot:
        nonlocal spoiled
        spoiled -= 1
        if spoiled < 0:
            return await worker.snapshot()
        pieces = [msgspec.msgpack.encode([SnapshotBlock(B, None, 0)]), b"\xc1"]
        return decode_snapshot(msgspec.msgpack.encode({"epoch": 1, "seq": 0, "block_size": 16, "pieces": pieces}))

    await worker.publish(stored(A))
    async with following(index, worker, fetch) as listener:
        assert held(index) == [A]
        assert (listener.counters.snapshots_failed, listener.counters.snapshots) == (2, 1)
    await worker.die()


async def test_what_cannot_be_read_costs_a_snapshot(context: zmq.asyncio.Context) -> None:
    index, worker = PrefixIndex(), RealWorker(context)
    async with following(index, worker) as listener:
        worker.cache.append(A)
        await worker.send(b"\xc1")
        await eventually(lambda: held(index) == [A] and index.synced("w0"))
        assert listener.counters.malformed == 1
        await worker.publish(stored(B))
        await eventually(lambda: held(index) == [A, B])
    await worker.die()


@pytest.mark.parametrize(("epoch", "restarts"), [(2, 1), (1, 0)], ids=["another epoch", "the same epoch"])
async def test_a_worker_that_dies_and_comes_back_on_its_address_is_followed_again(
    context: zmq.asyncio.Context, epoch: int, restarts: int
) -> None:
    index, first = PrefixIndex(), RealWorker(context, epoch=1)
    current = [first]

    async def fetch() -> Snapshot:
        if not current:
            raise ConnectionRefusedError
        return await current[0].snapshot()

    async with following(index, first, fetch) as listener:
        for name in (A, B):
            await first.publish(stored(name))
        await eventually(lambda: held(index) == [A, B])
        current.clear()
        await first.die()
        await eventually(lambda: not listener.connected)
        assert not index.synced("w0")
        second = RealWorker(context, epoch=epoch, pub=first.pub, replay=first.replay)
        await second.publish(stored(C))
        current.append(second)
        await eventually(lambda: held(index) == [C] and index.synced("w0"))
        await second.subscribed()
        await second.publish(BlockRemoved([C]))
        await eventually(lambda: held(index) == [])
        assert (listener.counters.restarts, listener.counters.disconnects) == (restarts, 1)
    await second.die()


async def test_a_worker_whose_publisher_connects_finds_the_subscriber_there(context: zmq.asyncio.Context) -> None:
    """And so does the next one: the subscriber is there again, on the same port."""
    index, lives = PrefixIndex(max_blocks=100), list[RealWorker]()
    listener = Subscriber("w0", ANY_PORT, None, index, lambda: lives[-1].snapshot(), attach=bind)
    following = asyncio.ensure_future(listener.run())
    await eventually(lambda: listener.address != ANY_PORT)
    for name in (A, B):
        worker = RealWorker(context, epoch=len(lives))
        lives.append(worker)
        worker._pub.connect(listener.address)
        await eventually(lambda: listener.connected and index.synced("w0"))
        await worker.subscribed()
        await worker.publish(stored(name))
        await eventually(lambda: held(index) == [name])  # noqa: B023  # called at once
        await worker.die()
        await eventually(lambda: not listener.connected)
    following.cancel()
    with suppress(asyncio.CancelledError):
        await following


async def test_a_port_that_is_taken_is_tried_again_later(context: zmq.asyncio.Context) -> None:
    worker = RealWorker(context)
    listener = Subscriber("w0", worker.pub, worker.replay, PrefixIndex(max_blocks=100), worker.snapshot, attach=bind)
    following = asyncio.ensure_future(listener.run())
    await eventually(lambda: listener.counters.disconnects >= 2)
    assert not following.done()
    following.cancel()
    with suppress(asyncio.CancelledError):
        await following
    await worker.die()


async def test_of_many_subscribers_only_so_many_fetch_at_once(context: zmq.asyncio.Context) -> None:
    index, permits, answered = PrefixIndex(max_blocks=100), asyncio.Semaphore(2), asyncio.Event()
    workers = [RealWorker(context) for _ in range(6)]
    at_once, most = 0, 0

    async def fetch() -> Snapshot:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await answered.wait()
        at_once -= 1
        return Snapshot(1, -1, 16, [])

    listeners = [
        Subscriber(f"w{number}", worker.pub, None, index, fetch, permits=permits)
        for number, worker in enumerate(workers)
    ]
    tasks = [asyncio.ensure_future(listener.run()) for listener in listeners]
    await eventually(lambda: all(listener.connected for listener in listeners))
    assert at_once == 2
    answered.set()
    await eventually(lambda: all(index.synced(f"w{number}") for number in range(6)))
    assert most == 2
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for worker in workers:
        await worker.die()


async def test_a_worker_that_comes_back_elsewhere_is_followed_by_a_new_subscriber(context: zmq.asyncio.Context) -> None:
    index, first, second = PrefixIndex(), RealWorker(context, epoch=1), RealWorker(context, epoch=2)
    await first.publish(stored(A))
    await second.publish(stored(B))
    async with following(index, first):
        assert held(index) == [A]
    async with following(index, second):
        assert held(index) == [B]
    await first.die()
    await second.die()


async def test_a_snapshot_that_fails_is_asked_for_again_at_a_bounded_rate(context: zmq.asyncio.Context) -> None:
    index, worker = PrefixIndex(), RealWorker(context)
    failures = 3

    async def fetch() -> Snapshot:
        nonlocal failures
        if failures:
            failures -= 1
            raise OSError("away")
        return await worker.snapshot()

    await worker.publish(stored(A))
    async with following(index, worker, fetch) as listener:
        assert held(index) == [A]
        assert (listener.counters.snapshots_failed, listener.counters.snapshots) == (3, 1)
    await worker.die()


async def test_nothing_is_asked_of_a_worker_that_is_not_there() -> None:
    asked = 0

    async def fetch() -> Snapshot:
        nonlocal asked
        asked += 1
        raise OSError

    listener = Subscriber("w0", "tcp://127.0.0.1:9", None, PrefixIndex(), fetch)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await listener.run()
    assert asked == 0


async def test_recorded_frames_of_an_engine_without_snapshots_build_the_index(context: zmq.asyncio.Context) -> None:
    index, worker = PrefixIndex(), RealWorker(context, epoch=None)
    payloads = [recorded(name).payload for name in ("stored", "evicted")]
    await worker.send(payloads[0])
    listener = Subscriber("w0", worker.pub, worker.replay, index, None)
    async with running(listener):
        await worker.subscribed()
        await eventually(lambda: index.blocks("w0") == 4)
        await worker.send(payloads[1])
        await eventually(lambda: listener.counters.applied == 2)
        new = decode_batch(payloads[1]).events[-1]
        assert isinstance(new, BlockStored)
        assert index.match(keys(new.hashes))["w0"].device == len(new.hashes)
    await worker.die()


def test_a_stream_that_could_never_be_whole_is_refused() -> None:
    with pytest.raises(ValueError, match="replay"):
        Subscriber("w0", "tcp://127.0.0.1:9", None, PrefixIndex(), None)


def test_the_pace_doubles_in_trouble_and_rests_in_peace() -> None:
    now = 0.0
    pace = Pace(lambda: now, first=1, longest=4)
    waits = []
    for _ in range(5):
        assert pace.wait == 0
        pace.attempt()
        waits.append(pace.wait)
        now += pace.wait
    assert waits == [1, 2, 4, 4, 4]
    now += 100
    pace.attempt()
    assert pace.wait == 1
