"""The subscriber over real sockets: it follows a worker through loss, silence, death and return."""

import asyncio
from contextlib import suppress

import pytest
import zmq
import zmq.asyncio

from cacheplane import subscriber
from cacheplane.index import PrefixIndex
from cacheplane.subscriber import Pace, Subscriber, bind
from cacheplane.wire import (
    BlockRemoved,
    BlockStored,
    Snapshot,
    decode_batch,
)
from tests.cacheplane.live_worker import ANY_PORT, A, B, C, RealWorker, eventually, following, held, running, stored
from tests.cacheplane.oracle import keys
from tests.cacheplane.recordings import recorded


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
