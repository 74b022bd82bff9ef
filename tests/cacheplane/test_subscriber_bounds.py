"""The subscriber and what is too much or cannot be read: others have their turn meanwhile, and a snapshot heals it."""

import asyncio
from contextlib import suppress

import msgspec
import pytest
import zmq.asyncio

from cacheplane import subscriber
from cacheplane.index import PrefixIndex
from cacheplane.wire import (
    Batch,
    Snapshot,
    SnapshotBlock,
    decode_snapshot,
    encode_batch,
    encode_message,
)
from tests.cacheplane.live_worker import A, B, RealWorker, eventually, following, held, stored


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
