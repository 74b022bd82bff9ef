"""The law of the event stream: after any loss, duplication, reordering or restart, index == cache.

A worker is simulated with its cache, replay buffer and snapshots, and a channel that does its worst; an engine too,
that publishes tokens and hashes of its own. The real Subscriber listens; only its sockets are played.
"""

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cacheplane import stream, subscriber
from cacheplane.content import decode_engine_batch
from cacheplane.identity import BlockChain, Namespace
from cacheplane.index import PrefixIndex
from cacheplane.salts import EngineSalts
from cacheplane.stream import Phase
from cacheplane.subscriber import Subscriber
from cacheplane.translation import Translation
from cacheplane.wire import (
    AllBlocksCleared,
    Batch,
    BlockRemoved,
    BlockStored,
    Event,
    Message,
    Snapshot,
    SnapshotBlock,
    Tier,
    encode_batch,
    encode_message,
)
from tests.cacheplane.oracle import check_books, held

NAMES = [bytes([value]) * 16 for value in range(6)]
_TOKENS = list(range(96))

names = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3)
tiers = st.sampled_from([Tier.DEVICE, Tier.HOST])
events = st.one_of(
    st.builds(BlockStored, names, st.none(), st.just(16), tiers),
    st.builds(BlockRemoved, names, tiers),
    st.just(AllBlocksCleared()),
)
PUBLISH = st.tuples(st.just("publish"), st.lists(events, max_size=2))
CHANNEL = st.tuples(st.sampled_from(["deliver", "deliver", "lose", "duplicate", "swap", "spoil", "overrun"]), st.none())
WORLD = st.tuples(st.sampled_from(["restart", "disconnect", "outage", "recover", "quiet"]), st.none())
histories = st.lists(PUBLISH | CHANNEL | WORLD, max_size=40)


class SimulatedWorker:
    """A cache that tells of its changes, and a channel to one subscriber."""

    def __init__(self, *, with_epochs: bool, buffered: int) -> None:
        self.with_epochs, self.buffered = with_epochs, buffered
        self.epoch = 0
        self.away = False
        self.index = PrefixIndex(max_blocks=1_000)
        self.time = 0.0
        self.listener = self.subscribe()
        self.restart()

    def subscribe(self) -> Subscriber:
        snapshot = self.snapshot if self.with_epochs else None
        return Subscriber("w0", "pub", "replay", self.index, snapshot, clock=lambda: self.time)

    def restart(self) -> None:
        self.epoch += 1
        self.cache: set[tuple[bytes, Tier]] = set()
        self.published: list[Message] = []
        self.channel: list[list[bytes]] = []
        self.disconnect()

    def disconnect(self) -> None:
        """What is in the channel goes with the connection."""
        self.channel = []
        self.listener._enter(stream.broken(self.listener.state))

    def publish(self, changes: Iterable[Event]) -> None:
        for change in changes:
            match change:
                case BlockStored():
                    self.cache |= {(name, change.tier) for name in change.hashes}
                case BlockRemoved():
                    self.cache -= {(name, change.tier) for name in change.hashes}
                case AllBlocksCleared():
                    self.cache.clear()
        self.send(encode_batch(Batch(self.time, list(changes), None, self.epoch if self.with_epochs else None)))

    def send(self, payload: bytes) -> None:
        message = Message(b"kv", len(self.published), payload)
        self.published.append(message)
        self.channel.append(encode_message(message.seq, message.payload))

    async def snapshot(self) -> Snapshot:
        if self.away:
            raise ConnectionError
        blocks = [SnapshotBlock(name, None, tier) for name, tier in sorted(self.cache)]
        return Snapshot(self.epoch, len(self.published) - 1, 16, blocks)

    async def replay(self, _context: object, _address: str, start: int) -> list[Message]:
        if self.away:
            raise TimeoutError
        kept = self.published[-self.buffered :] if self.with_epochs else self.published
        return [message for message in kept if message.seq >= start]

    async def step(self, verb: str, changes: Any) -> None:
        self.time += 0.5
        match verb:
            case "publish":
                self.publish(changes)
            case "restart":
                self.restart()
            case "disconnect":
                self.disconnect()
            case "outage" | "recover":
                self.away = verb == "outage"
            case "quiet" if self.listener.state.phase is Phase.LIVE:
                await self.listener._catch_up(None)  # type: ignore[arg-type]
            case _ if self.channel:
                await self.transmit(verb)
        await self.resync()

    async def transmit(self, verb: str) -> None:
        """What a channel may do to its oldest message."""
        match verb, self.channel:
            case "deliver", [oldest, *rest]:
                self.channel = rest
                await self.hear(oldest)
            case "lose", [_, *rest]:
                self.channel = rest
            case "duplicate", [oldest, *rest]:
                self.channel = [oldest, oldest, *rest]
            case "overrun", [*_, newest]:  # a slow consumer: all but the last message found its queue full
                self.channel = [newest]
            case "swap", [oldest, newer, *rest]:
                self.channel = [newer, oldest, *rest]
            case "spoil", [[topic, seq, _], *rest]:
                self.channel = [[topic, seq, b"\xc1"], *rest]

    async def hear(self, frames: list[bytes]) -> None:
        await self.listener._hear(None, frames)  # type: ignore[arg-type]
        await self.resync()

    async def resync(self) -> None:
        if self.listener.state.wants_snapshot and self.listener._pace.wait == 0:
            await self.listener._resync(None)  # type: ignore[arg-type]

    async def settle(self) -> None:
        """The world calms down: what is in the channel arrives, then silence, in which the tail is checked."""
        self.away = False
        while self.channel:
            await self.hear(self.channel.pop(0))
        self.time += 100
        await self.resync()
        await self.listener._catch_up(None)  # type: ignore[arg-type]
        self.time += 100
        await self.resync()

    def confirmed(self) -> set[tuple[bytes, Tier]]:
        return held(self.index, "w0", NAMES)


class SimulatedEngine(SimulatedWorker):
    """Publishes tokens, salts and hashes of its own, in blocks of two of ours; has neither epochs nor snapshots.

    Block i hangs on block i - 1, but for every third, which begins a prompt under a salt of its own. A block is
    stored with all that it hangs on; what the index should hold of it are our names for its tokens.
    """

    def __init__(self) -> None:
        self.salts = EngineSalts()
        namespaces = [Namespace(bytes([prompt]) * 32) for prompt in range(2)]
        self.salt = [self.salts.give(namespace) for namespace in namespaces]
        chains = [BlockChain.of(_TOKENS, namespace).hashes for namespace in namespaces]
        self.names = [chain[first : first + 2] for chain in chains for first in (0, 2, 4)]
        super().__init__(with_epochs=False, buffered=0)

    def subscribe(self) -> Subscriber:
        sink = Translation(self.index, self.salts)
        return Subscriber("w0", "pub", "replay", sink, None, clock=lambda: self.time, decode=decode_engine_batch)

    def publish(self, changes: Iterable[Event]) -> None:
        events = [told for change in changes for told in self.told(change)]
        self.send(msgspec.msgpack.encode([self.time, events, 0]))

    def told(self, change: Event) -> Iterator[dict[str, Any]]:
        match change:
            case BlockStored():
                for number in map(NAMES.index, change.hashes):
                    for block in range(number - number % 3, number):
                        if not any(name in self.names[block] for name, _ in self.cache):
                            yield self.stored(block, Tier.DEVICE)
                    yield self.stored(number, change.tier)
            case BlockRemoved():
                for number in map(NAMES.index, change.hashes):
                    self.cache -= {(name, change.tier) for name in self.names[number]}
                    yield {"type": "BlockRemoved", "block_hashes": [number - 3], "medium": change.tier.name}
            case AllBlocksCleared():
                self.cache.clear()
                yield {"type": "AllBlocksCleared"}

    def stored(self, number: int, tier: Tier) -> dict[str, Any]:
        prompt, place = divmod(number, 3)
        self.cache |= {(name, tier) for name in self.names[number]}
        event = {"type": "BlockStored", "block_hashes": [number - 3], "block_size": 32, "medium": tier.name}
        if place:
            return event | {"parent_block_hash": number - 4, "token_ids": _TOKENS[32 * place : 32 * (place + 1)]}
        return event | {"token_ids": _TOKENS[:32], "extra_keys": [[self.salt[prompt]]]}

    def confirmed(self) -> set[tuple[bytes, Tier]]:
        return held(self.index, "w0", [name for names in self.names for name in names])


def play(worker: SimulatedWorker, history: list[tuple[str, Any]]) -> None:
    async def run() -> None:
        for verb, changes in history:
            await worker.step(verb, changes)
        await worker.settle()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subscriber, "_ask_replay", worker.replay)
        asyncio.run(run())


@given(histories, st.integers(1, 5))
def test_the_index_ends_equal_to_the_cache(history: list[tuple[str, Any]], buffered: int) -> None:
    worker = SimulatedWorker(with_epochs=True, buffered=buffered)
    play(worker, history)
    assert worker.listener.state.phase is Phase.LIVE
    assert worker.index.synced("w0")
    assert worker.confirmed() == worker.cache


@given(histories.map(lambda history: [step for step in history if step[0] not in ("swap", "duplicate")]))
def test_an_engine_without_epochs_and_snapshots_is_followed_by_its_replay(history: list[tuple[str, Any]]) -> None:
    worker = SimulatedWorker(with_epochs=False, buffered=0)
    play(worker, history)
    assert worker.confirmed() == worker.cache


@given(histories.map(lambda history: [step for step in history if step[0] not in ("swap", "duplicate")]))
def test_an_engine_that_publishes_tokens_is_followed_under_our_names(history: list[tuple[str, Any]]) -> None:
    engine = SimulatedEngine()
    play(engine, history)
    assert engine.confirmed() == engine.cache
    check_books(engine.index)


def stored(*blocks: bytes) -> tuple[str, list[Event]]:
    return "publish", [BlockStored(list(blocks), None, 16)]


def removed(*blocks: bytes) -> tuple[str, list[Event]]:
    return "publish", [BlockRemoved(list(blocks))]


DELIVER, LOSE = ("deliver", None), ("lose", None)


def test_a_lost_removal_is_replayed_before_the_next_message_counts() -> None:
    worker = SimulatedWorker(with_epochs=True, buffered=10)
    steps = [stored(NAMES[0]), DELIVER, removed(NAMES[0]), stored(NAMES[1]), LOSE, DELIVER]
    play(worker, steps)
    assert worker.confirmed() == {(NAMES[1], Tier.DEVICE)}
    assert worker.listener.counters.gaps == 1
    assert worker.listener.counters.snapshots == 1


def test_what_a_snapshot_includes_is_not_applied_again() -> None:
    worker = SimulatedWorker(with_epochs=True, buffered=10)
    away, back = ("outage", None), ("recover", None)
    # Stored, then removed, both while no snapshot was to be had: applying the first later would invent a block.
    play(worker, [away, stored(NAMES[0]), removed(NAMES[0]), back, DELIVER, DELIVER])
    assert worker.confirmed() == set()
    assert worker.listener.counters.applied == 0
    assert worker.listener.counters.dropped == 2


def test_the_blocks_of_a_worker_that_restarted_are_gone_before_its_snapshot_comes() -> None:
    worker = SimulatedWorker(with_epochs=True, buffered=10)

    async def run() -> None:
        await worker.resync()
        worker.publish([BlockStored([NAMES[0]], None, 16)])
        await worker.hear(worker.channel.pop())
        assert worker.index.blocks("w0") == 1
        worker.away = True
        await worker.hear(encode_message(0, encode_batch(Batch(0.0, [], None, worker.epoch + 1))))

    asyncio.run(run())
    assert worker.listener.state.phase is Phase.REWIND
    assert worker.index.blocks("w0") == 0


def test_a_stream_that_is_always_spoiled_does_not_fetch_snapshots_without_end() -> None:
    worker = SimulatedWorker(with_epochs=True, buffered=10)
    play(worker, [step for _ in range(200) for step in (stored(NAMES[0]), ("spoil", None), DELIVER)])
    assert worker.listener.counters.malformed == 200
    # 300 seconds of spoiled messages, at most one attempt per 5 seconds after the first few
    assert worker.listener.counters.snapshots < 75


def test_events_of_unknown_kinds_are_counted() -> None:
    worker = SimulatedWorker(with_epochs=True, buffered=10)
    payload = msgspec.msgpack.encode([0.0, [["LeaseGranted"]], None, worker.epoch])

    async def run() -> None:
        await worker.resync()
        await worker.hear(encode_message(0, payload))

    asyncio.run(run())
    assert worker.listener.counters.skipped_events == 1
