"""One worker's event stream, from its sockets into the index."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Protocol

import zmq
import zmq.asyncio
from zmq.utils.monitor import parse_monitor_message

from cacheplane import stream
from cacheplane.refill import pieces, refill
from cacheplane.stream import Action, Phase, StreamState
from cacheplane.wire import (
    MAX_PAYLOAD_BYTES,
    NO_SEQ,
    TOPIC,
    Batch,
    Message,
    Snapshot,
    WireError,
    decode_batch,
    decode_message,
    decode_replay,
    encode_replay_request,
)

QUIET_SECONDS: Final = 5.0  # silence after which the tail of the stream is checked
REPLAY_SECONDS: Final = 2.0  # for a whole replay
SNAPSHOT_SECONDS: Final = 30.0
RECEIVE_QUEUE: Final = 10_000  # messages that ZMQ holds while a snapshot is fetched; beyond it there is a gap
REPLAY_MESSAGES: Final = 100_000
REPLAY_BYTES: Final = 256 << 20
RECEIVED_AT_ONCE: Final = 32  # messages of a replay, in less than a millisecond
CLEARED_AT_ONCE: Final = 4_096  # blocks, in a millisecond or two

FetchSnapshot = Callable[[], Awaitable[Snapshot]]
Attach = Callable[[zmq.asyncio.Socket, str], object]


def connect(feed: zmq.asyncio.Socket, address: str) -> None:
    """The worker binds its PUB, as ours does and vLLM at an address with `*`."""
    feed.connect(address)


def bind(feed: zmq.asyncio.Socket, address: str) -> None:
    """The worker's PUB connects, as vLLM's does to an address with a host: the subscriber is there first."""
    feed.bind(address)


class Sink(Protocol):
    """Where a stream ends: the prefix index, or something in front of it; see `PrefixIndex` for what each means."""

    def apply(self, worker_id: str, batch: Batch) -> None: ...

    def clear(self, worker_id: str, most: int | None = None) -> int: ...

    def trust(self, worker_id: str) -> None: ...

    def doubt(self, worker_id: str) -> None: ...

    def drop(self, worker_id: str, most: int | None = None) -> int: ...


class Pace:
    """How soon the next attempt may be made: doubling while there is trouble, at once after a long peace.

    first, longest   seconds between two attempts
    """

    def __init__(self, clock: Callable[[], float], first: float = 0.1, longest: float = 5.0) -> None:
        self._clock, self._first, self._longest = clock, first, longest
        self._delay, self._last = first, -math.inf

    @property
    def wait(self) -> float:
        """Seconds until the next attempt is allowed, 0 when it is allowed now."""
        return max(0.0, self._last + self._delay - self._clock())

    def attempt(self) -> None:
        """An attempt is made now. Success does not reset the pace, peace does: a stream that needs a new
        snapshot after every message would otherwise fetch them without end."""
        now = self._clock()
        calm = now - self._last > 2 * self._longest
        self._delay = self._first if calm else min(2 * self._delay, self._longest)
        self._last = now


@dataclass(slots=True)
class Counters:
    """What happened on one stream since the subscriber was made."""

    applied: int = 0
    dropped: int = 0
    gaps: int = 0
    replays_failed: int = 0
    snapshots: int = 0
    snapshots_failed: int = 0
    restarts: int = 0
    disconnects: int = 0
    malformed: int = 0
    skipped_events: int = 0


class Subscriber:
    """Keeps the index equal to one worker's cache, for as long as `run` runs.

    pub, replay      addresses of the worker's PUB and ROUTER sockets; without replay every gap costs a snapshot
    attach           `connect` to the worker's PUB, or `bind` and let it connect; then `address` says where
    decode           `decode_engine_batch` for an engine whose blocks are to be translated
    permits          shared by many subscribers, so that not all of them fetch at once when a gateway joins
    fetch_snapshot   asks the worker for its blocks; may raise anything, which is retried at a bounded rate.
                     None for an engine without snapshots: then the replay buffer is read from its start, so that
                     one of the two must be given (ValueError).
    After            a connection always begins with a snapshot, asked for once the link is up, so that nothing
                     falls between the two. While the worker is away nothing is asked of it.
    Never            spins, raises for what the worker sends, or holds more than RECEIVE_QUEUE messages.

    A worker that comes back on another address gets another Subscriber; the first snapshot replaces all.
    """

    def __init__(
        self,
        worker_id: str,
        pub: str,
        replay: str | None,
        index: Sink,
        fetch_snapshot: FetchSnapshot | None,
        topic: bytes = TOPIC,
        clock: Callable[[], float] = time.monotonic,
        *,
        attach: Attach = connect,
        decode: Callable[[bytes], Batch] = decode_batch,
        permits: asyncio.Semaphore | None = None,
    ) -> None:
        if fetch_snapshot is None and replay is None:
            raise ValueError("a stream without snapshots and without replay can never be whole")
        self.worker_id = worker_id
        self.state = StreamState()
        self.counters = Counters()
        self.connected = False
        self.address = pub
        self._replay, self._topic = replay, topic
        self._attach, self._decode = attach, decode
        self._permits = permits or asyncio.Semaphore(1)
        self._index, self._fetch = index, fetch_snapshot
        self._pace = Pace(clock)

    async def run(self) -> None:
        """Follow the worker until cancelled; the index keeps what it has, dropping it is the owner's call."""
        with zmq.asyncio.Context() as context:
            while True:
                # A socket per connection: what an earlier incarnation left in a queue goes with its socket.
                with context.socket(zmq.SUB) as feed:
                    await self._follow(context, feed)
                await asyncio.sleep(self._pace.wait)

    def distrust(self) -> None:
        """The index has shown to be wrong about this worker: what it holds is taken anew from a snapshot."""
        self._enter(stream.broken(self.state))

    async def _follow(self, context: zmq.asyncio.Context, feed: zmq.asyncio.Socket) -> None:
        """One connection, from before it is up until it breaks."""
        _configure(feed)
        feed.subscribe(self._topic)
        with feed.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED) as monitor:
            try:
                if self._attached(feed) and await _next_event(monitor) == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                    self.connected = True
                    await self._listen(context, feed, monitor)
            finally:
                feed.disable_monitor()
                self.connected = False
                self._enter(stream.broken(self.state))
        self.counters.disconnects += 1

    def _attached(self, feed: zmq.asyncio.Socket) -> bool:
        try:
            self._attach(feed, self.address)
        except zmq.ZMQError:  # the port is taken, as it is for a moment when it was just given up
            self._pace.attempt()
            return False
        self.address = str(feed.getsockopt_string(zmq.LAST_ENDPOINT))
        return True

    async def _listen(
        self, context: zmq.asyncio.Context, feed: zmq.asyncio.Socket, monitor: zmq.asyncio.Socket
    ) -> None:
        poller = zmq.asyncio.Poller()
        poller.register(monitor, zmq.POLLIN)
        poller.register(feed, zmq.POLLIN)
        while True:
            if self.state.wants_snapshot and self._pace.wait == 0:
                await self._resync(context)
            patience = min(QUIET_SECONDS, self._pace.wait) if self.state.wants_snapshot else QUIET_SECONDS
            ready = dict(await poller.poll(1000 * patience))
            if monitor in ready:
                return  # after the handshake a monitor has one thing to say
            if feed in ready:
                await self._hear(context, await feed.recv_multipart())
            elif self.state.phase is Phase.LIVE:
                await self._catch_up(context)  # the last messages may be lost, and no later one tells of it

    async def _hear(self, context: zmq.asyncio.Context, frames: list[bytes]) -> None:
        """One message of the live feed."""
        try:
            message = decode_message(frames)
        except WireError:
            self._spoiled()
            return
        if (batch := self._read(message)) is None:
            return
        action = self._observe(message.seq, batch)
        if action is Action.REPLAY:
            self.counters.gaps += 1
            await self._catch_up(context)
            action = self._observe(message.seq, batch)
        await self._act(action, batch)

    def _observe(self, seq: int, batch: Batch) -> Action:
        state, action = stream.observe(self.state, batch.epoch, seq)
        self._enter(state)
        return action

    def _enter(self, state: StreamState) -> None:
        """Let the index know what its blocks of this worker are worth."""
        if state.phase is not self.state.phase:
            if state.phase is Phase.REWIND:
                self.counters.restarts += 1
                self._index.drop(self.worker_id)
            elif state.wants_snapshot:
                self._index.doubt(self.worker_id)
        self.state = state

    async def _act(self, action: Action, batch: Batch) -> None:
        """A large message is applied in pieces, between which others have their turn."""
        if action is not Action.APPLY:
            self.counters.dropped += 1
            return
        for piece in pieces(batch):
            self._index.apply(self.worker_id, piece)
            await asyncio.sleep(0)
        self.counters.applied += 1
        self.counters.skipped_events += batch.skipped

    def _read(self, message: Message) -> Batch | None:
        try:
            return self._decode(message.payload)
        except WireError:
            self._spoiled()
            return None

    def _spoiled(self) -> None:
        """A payload that cannot be read said something that is now unknown."""
        self.counters.malformed += 1
        self._enter(stream.broken(self.state))

    async def _catch_up(self, context: zmq.asyncio.Context) -> None:
        """Apply what a replay brings; when it fails or has holes, the next look at the stream shows it."""
        for message in await self._replayed(context, self.state.seq + 1):
            if self.state.wants_snapshot:
                return
            await self._replay_one(message)

    async def _replay_one(self, message: Message) -> None:
        if (batch := self._read(message)) is None:
            return
        state, action = stream.replayed(self.state, batch.epoch, message.seq)
        self._enter(state)
        await self._act(action, batch)

    async def _replayed(self, context: zmq.asyncio.Context, start: int) -> list[Message]:
        """The messages from `start` on that the worker still has; none when it does not answer in time."""
        if self._replay is None:
            return []
        try:
            return await _ask_replay(context, self._replay, start)
        except (TimeoutError, WireError, zmq.ZMQError):  # the last for an address that is none
            self.counters.replays_failed += 1
            return []

    async def _resync(self, context: zmq.asyncio.Context) -> None:
        self._pace.attempt()
        async with self._permits:
            await (self._rebuild(context) if self._fetch is None else self._restore_by(self._fetch))

    async def _restore_by(self, fetch: FetchSnapshot) -> None:
        try:
            async with asyncio.timeout(SNAPSHOT_SECONDS):
                snapshot = await fetch()
        except Exception:  # whatever the client raises, the answer is to try again, later
            self.counters.snapshots_failed += 1
            return
        try:
            await self._restore(snapshot, snapshot.epoch)
        except WireError:  # in a later piece; what came before it is a hint
            self.counters.snapshots_failed += 1
        else:
            self.counters.snapshots += 1

    async def _rebuild(self, context: zmq.asyncio.Context) -> None:
        """No snapshot to be had: an empty cache, plus all that the replay buffer still holds.

        What was stored before the buffer begins stays unknown, which costs hits and never invents one.
        """
        messages = await self._replayed(context, 0)
        first = self._read(messages[0]) if messages else None
        before = messages[0].seq - 1 if messages else NO_SEQ
        await self._restore(Snapshot(0, before, 0, []), first.epoch if first else None)
        for message in messages:
            await self._replay_one(message)

    async def _restore(self, snapshot: Snapshot, epoch: int | None) -> None:
        """Piece by piece, so that nobody's look-up waits for a large snapshot; the feed waits in its queue."""
        while self._index.clear(self.worker_id, CLEARED_AT_ONCE):  # noqa: ASYNC110  # a turn for others, no waiting
            await asyncio.sleep(0)
        for batch in refill(snapshot):
            self._index.apply(self.worker_id, batch)
            await asyncio.sleep(0)
        self.counters.restarts += self.state.epoch not in (None, epoch)
        self._index.trust(self.worker_id)
        self._enter(stream.restored(self.state, epoch, snapshot.seq))


def _configure(feed: zmq.asyncio.Socket) -> None:
    feed.setsockopt(zmq.LINGER, 0)
    feed.setsockopt(zmq.RCVHWM, RECEIVE_QUEUE)
    feed.setsockopt(zmq.MAXMSGSIZE, MAX_PAYLOAD_BYTES)
    feed.setsockopt(zmq.RECONNECT_IVL, 100)
    feed.setsockopt(zmq.RECONNECT_IVL_MAX, 5_000)
    # Heartbeats, so that a worker whose machine vanished is noticed though its end never closed.
    feed.setsockopt(zmq.HEARTBEAT_IVL, 5_000)
    feed.setsockopt(zmq.HEARTBEAT_TIMEOUT, 15_000)


async def _next_event(monitor: zmq.asyncio.Socket) -> int:
    return int(parse_monitor_message(await monitor.recv_multipart())["event"])


async def _ask_replay(context: zmq.asyncio.Context, address: str, start: int) -> list[Message]:
    """One replay over a socket of its own, so that a late answer to an earlier one cannot mix in."""
    messages: list[Message] = []
    left = REPLAY_BYTES
    with context.socket(zmq.DEALER) as dealer:
        dealer.setsockopt(zmq.LINGER, 0)
        dealer.setsockopt(zmq.MAXMSGSIZE, MAX_PAYLOAD_BYTES)
        dealer.connect(address)
        async with asyncio.timeout(REPLAY_SECONDS):
            await dealer.send_multipart(encode_replay_request(start))
            while len(messages) < REPLAY_MESSAGES and left > 0:
                if (answer := decode_replay(await dealer.recv_multipart())) is None:
                    break
                messages.append(answer)
                left -= len(answer.payload)
                if len(messages) % RECEIVED_AT_ONCE == 0:  # what is there already is received without waiting
                    await asyncio.sleep(0)
    return messages
