"""The block events of TensorRT-LLM, fetched as JSON: what it says, and who asks.

`GET /kv_cache_events` answers with the events since the last answer, from a ring of bounded size:
`[{event_id, data, window_size, attention_dp_rank?}]`, `data` one of
    created   num_blocks_per_cache_level
    stored    parent_hash, blocks[]: block_hash, tokens[]: token_id, token_extra_id; cache_level (0 device, 1 host);
              cache_salt; mm_keys[] of the images in it
    removed   block_hashes
    updated   block_hash, cache_level: {old_value, new_value}
Source: TensorRT-LLM, `tensorrt_llm/_utils.py` (KVCacheEventSerializer).
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Raw

from cacheplane import stream
from cacheplane.ranks import holder
from cacheplane.stream import Action, StreamState
from cacheplane.subscriber import Pace, Sink
from cacheplane.wire import (
    MAX_EVENTS,
    MAX_HASHES,
    MAX_PAYLOAD_BYTES,
    Batch,
    BlockRemoved,
    BlockStored,
    Content,
    Event,
    Tier,
    WireError,
)

POLL_SECONDS: Final = 0.1

Fetch = Callable[[], Awaitable[bytes]]

_U64: Final = (1 << 64) - 1
_TIERS: Final = (Tier.DEVICE, Tier.HOST)


class _Token(msgspec.Struct):
    token_id: Annotated[int, Meta(ge=0, lt=1 << 32)]
    token_extra_id: int = 0


class _Block(msgspec.Struct):
    block_hash: int
    tokens: Annotated[list[_Token], Meta(max_length=1 << 20)]
    cache_level: int = 0
    cache_salt: Annotated[str, Meta(max_length=256)] | None = None
    mm_keys: Annotated[list[Raw], Meta(max_length=MAX_HASHES)] | None = None

    @property
    def holds_more(self) -> bool:
        """Than its tokens: images, whose tokens are alike whatever they show, or what a prompt table gives for them."""
        return bool(self.mm_keys) or any(token.token_extra_id for token in self.tokens)


class _Stored(msgspec.Struct, tag="stored"):
    blocks: Annotated[list[_Block], Meta(max_length=MAX_HASHES)]
    parent_hash: int | None = None


class _Removed(msgspec.Struct, tag="removed"):
    block_hashes: Annotated[list[int], Meta(max_length=MAX_HASHES)]


class _Change(msgspec.Struct):
    old_value: int
    new_value: int


class _Updated(msgspec.Struct, tag="updated"):
    block_hash: int
    cache_level: _Change | None = None


class _Created(msgspec.Struct, tag="created"):
    pass


class _Event(msgspec.Struct):
    event_id: Annotated[int, Meta(ge=0, lt=1 << 62)]
    data: Raw
    window_size: int = 0
    attention_dp_rank: int | None = None


class _Kind(msgspec.Struct):
    type: str


_EVENTS: Final = msgspec.json.Decoder(Annotated[list[_Event], Meta(max_length=MAX_EVENTS)])
_DATA: Final = msgspec.json.Decoder(_Stored | _Removed | _Updated | _Created)
_KIND: Final = msgspec.json.Decoder(_Kind)
_KINDS: Final = frozenset(("stored", "removed", "updated", "created"))


class PolledEvent(msgspec.Struct, frozen=True):
    """One event in our normal form: its place in the stream of its rank, and its window in tokens.

    events   none for what tells of no block; two for a block that moved to another tier
    known    whether its kind is known
    """

    id: int
    rank: int
    window: int
    events: list[Event]
    known: bool = True


def decode_events(payload: bytes) -> list[PolledEvent]:
    """An answer to a poll; WireError when it is malformed or over a bound. Events of unknown kinds are empty."""
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise WireError(f"an answer is larger than {MAX_PAYLOAD_BYTES} bytes")
    try:
        return [_polled(event) for event in _EVENTS.decode(payload)]
    except (msgspec.DecodeError, RecursionError):
        raise WireError("malformed cache events") from None


def _polled(event: _Event) -> PolledEvent:
    known = _KIND.decode(event.data).type in _KINDS
    events = _normal(_DATA.decode(event.data)) if known else []
    return PolledEvent(event.event_id, event.attention_dp_rank or 0, event.window_size, events, known)


def _normal(data: _Stored | _Removed | _Updated | _Created) -> list[Event]:
    match data:
        case _Stored():
            return _stored(data)
        case _Removed():
            return [BlockRemoved([_key(value) for value in data.block_hashes], tier) for tier in _TIERS]
        case _Updated(cache_level=_Change(old_value=old, new_value=new)) if {old, new} == {0, 1}:
            name = _key(data.block_hash)
            return [BlockStored([name], None, 0, _TIERS[new], None, Content([], [])), BlockRemoved([name], _TIERS[old])]
        case _:
            return []


def _stored(data: _Stored) -> list[Event]:
    """One event per block: each may lie on another level, and the last one of a prompt may not be full."""
    events: list[Event] = []
    parent = None if data.parent_hash is None else _key(data.parent_hash)
    for block in data.blocks:
        name = _key(block.block_hash)
        extra: list[Any] = [block.cache_salt] if block.cache_salt is not None and parent is None else []
        extra += [True] if block.holds_more else []
        content = Content([token.token_id for token in block.tokens], [extra])
        if 0 <= block.cache_level < len(_TIERS):
            tier = _TIERS[block.cache_level]
            events.append(BlockStored([name], parent, len(block.tokens), tier, None, content))
        parent = name
    return events


def _key(value: int) -> bytes:
    return (value & _U64).to_bytes(8, "big")


@dataclass(slots=True)
class PollCounters:
    """What happened since the poller was made; events, but for the failures."""

    applied: int = 0
    dropped: int = 0
    gaps: int = 0
    restarts: int = 0
    windowed: int = 0
    unknown: int = 0
    failures: int = 0


class Poller:
    """Keeps the index equal to what TensorRT-LLM has told since it was first asked, for as long as `run` runs.

    fetch    asks the engine; may raise anything, which is retried at a slower pace
    ranks    of attention data parallelism; each is a holder, with event ids of its own
    After    a gap (its ring overflowed), or ids that begin anew (a restart): what was known of the rank is dropped,
             for the engine has neither replay nor snapshot. Blocks from before are missed hits, never false ones.
             Blocks of a window shorter than the longest one heard of are left out: they are no whole prefix.
    """

    def __init__(
        self,
        worker_id: str,
        fetch: Fetch,
        sink: Sink,
        ranks: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.worker_id = worker_id
        self.counters = PollCounters()
        self._fetch, self._sink, self._ranks = fetch, sink, ranks
        self._states = [StreamState() for _ in range(ranks)]
        self._window = 0
        self._pace = Pace(clock)

    async def run(self) -> None:
        """Ask until cancelled."""
        while True:  # an engine that is only asked gives no event to wait for
            answered = await self.poll()
            await asyncio.sleep(POLL_SECONDS if answered else self._pace.wait)

    async def poll(self) -> bool:
        """Ask once; False when there was no answer, or none that can be read."""
        try:
            polled = decode_events(await self._fetch())
        except Exception:  # whatever the client raises, the answer is to try again, later
            self.counters.failures += 1
            self._pace.attempt()
            return False
        for event in polled:
            self._hear(event)
        return True

    def _hear(self, event: PolledEvent) -> None:
        if not 0 <= event.rank < self._ranks:
            self.counters.unknown += 1
            return
        state, action = stream.observe(self._states[event.rank], None, event.id)
        if action in (Action.REPLAY, Action.SNAPSHOT):
            self.counters.gaps += action is Action.REPLAY
            self.counters.restarts += state.phase is stream.Phase.REWIND
            self._empty(event.rank)
            state, action = stream.replayed(stream.restored(state, None, event.id - 1), None, event.id)
        self._states[event.rank] = state
        if action is Action.APPLY:
            self._apply(event)
        else:
            self.counters.dropped += 1

    def _empty(self, rank: int) -> None:
        """Nothing is known of a rank any more; what it tells from now on is whole again."""
        name = holder(self.worker_id, rank, self._ranks)
        self._sink.clear(name)
        self._sink.trust(name)

    def _apply(self, event: PolledEvent) -> None:
        self.counters.unknown += not event.known
        if event.window > self._window:
            if self._window:  # what was heard of until now is no whole prefix
                for rank in range(self._ranks):
                    self._empty(rank)
            self._window = event.window
        if event.window < self._window:
            self.counters.windowed += 1
            return
        self.counters.applied += 1
        self._sink.apply(holder(self.worker_id, event.rank, self._ranks), Batch(time.time(), event.events, event.rank))
