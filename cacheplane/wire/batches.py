"""Batches of block events, as any engine encodes them, in one normal form.

A batch is `[ts, [event...], dp_rank, epoch]` in msgpack. Engines write events as positional arrays or as maps tagged by
`type`, hashes as signed or unsigned integers or as bytes, and name media in many ways; everything is accepted here
and leaves in one normal form. `epoch` is ours: a random 63-bit integer per worker start.
Source: vLLM 0.32, frames as recorded in tests/cacheplane/frames.

Sizes are bounded before anything is built. Events of a kind or medium that is not known are counted in
`Batch.skipped`.
"""

import enum
import struct
from collections.abc import Callable
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Raw

MAX_PAYLOAD_BYTES: Final = 16 << 20
MAX_EVENTS: Final = 65_536  # per batch
MAX_HASHES: Final = 65_536  # per event
MAX_HASH_BYTES: Final = 64

_INT_HASH: Final = struct.Struct(">Q")
_U64: Final = (1 << 64) - 1


HashBytes = Annotated[bytes, Meta(min_length=1, max_length=MAX_HASH_BYTES)]
BlockSize = Annotated[int, Meta(ge=0, le=1 << 20)]


class WireError(ValueError):
    """A frame that does not follow the wire; the message never repeats its content."""


class Tier(enum.IntEnum):
    """Where a block lies, nearest first: a smaller value is quicker to use."""

    DEVICE = 0
    HOST = 1
    DISK = 2
    REMOTE = 3


# Every name that a public engine was seen to send.
_MEDIA: Final = {
    **dict.fromkeys(("GPU", "DEVICE"), Tier.DEVICE),
    **dict.fromkeys(("CPU", "CPU_PINNED", "CPU_TIER1", "HOST"), Tier.HOST),
    **dict.fromkeys(("CPU_TIER2", "DISK", "NVME", "STORAGE"), Tier.DISK),
    **dict.fromkeys(("EXTERNAL", "NETWORK", "REMOTE", "SHARED"), Tier.REMOTE),
}


class Content(msgspec.Struct, frozen=True):
    """What the blocks of one event hold, from engines that publish it. A prompt and a salt: never to be shown.

    tokens   of all blocks, one after the other; empty where the engine says only that known blocks moved
    extra    per block: whatever else its hash commits to, None for nothing (adapter, salt in the first block, images)
    lora     name of the adapter
    """

    tokens: list[int]
    extra: list[list[Any] | None]
    lora: str | None = None

    def __repr__(self) -> str:
        return "Content(...)"


class BlockStored(msgspec.Struct, frozen=True):
    """Blocks now on `tier`, in chain order; the first one follows `parent` (None at a root).

    group     of layers with full attention, None where an engine has one; blocks of other groups are not read
    content   only where it was asked for, see `decode_batch`
    """

    hashes: list[bytes]
    parent: bytes | None
    block_size: int
    tier: Tier = Tier.DEVICE
    group: int | None = None
    content: Content | None = None


class BlockRemoved(msgspec.Struct, frozen=True):
    """Blocks no longer on `tier`; copies on other tiers stay. `reason`: "evicted", "cleared", ... or None."""

    hashes: list[bytes]
    tier: Tier = Tier.DEVICE
    reason: str | None = None
    group: int | None = None


class AllBlocksCleared(msgspec.Struct, frozen=True):
    """The worker holds nothing any more, on no tier."""


Event = BlockStored | BlockRemoved | AllBlocksCleared
ReadContent = Callable[[bytes, bytes, str | None], Content | None]


class Batch(msgspec.Struct, frozen=True):
    """What one message says, in our normal form.

    ts        seconds since 1970, the worker's clock
    dp_rank   data-parallel rank, or None
    epoch     incarnation of the worker, None for engines without
    skipped   events left out because their kind or medium is unknown; not on the wire
    """

    ts: float
    events: list[Event]
    dp_rank: int | None = None
    epoch: int | None = None
    skipped: int = 0


# What engines send, before it is brought to the normal form. Token ids and extra keys are prompts and salts: they
# stay as they are unless somebody asks for them.

# Groups of layers of which a block is a prefix of all that came before it. A window forgets its beginning, and a
# state is no block at all: to count them would fake a prefix, or break one (vLLM's KVCacheSpecKind).
_WHOLE_PREFIX: Final = frozenset((None, "full_attention", "mla_attention", "sink_full_attention"))

_Hash = int | HashBytes
_Hashes = Annotated[list[_Hash], Meta(max_length=MAX_HASHES)]
_Word = Annotated[str, Meta(max_length=64)]
_RawEvents = Annotated[list[Raw], Meta(max_length=MAX_EVENTS)]


class _BatchArray(msgspec.Struct, array_like=True):
    ts: float
    events: _RawEvents
    data_parallel_rank: int | None = None
    epoch: int | None = None


class _BatchMap(msgspec.Struct):
    ts: float
    events: _RawEvents
    data_parallel_rank: int | None = None
    epoch: int | None = None


class _StoredMap(msgspec.Struct, tag="BlockStored"):
    block_hashes: _Hashes
    block_size: BlockSize
    parent_block_hash: _Hash | None = None
    token_ids: Raw = Raw()
    medium: _Word | None = None
    lora_name: _Word | None = None
    extra_keys: Raw = Raw()
    group_idx: int | None = None
    kv_cache_spec_kind: _Word | None = None


class _RemovedMap(msgspec.Struct, tag="BlockRemoved"):
    block_hashes: _Hashes
    medium: _Word | None = None
    reason: _Word | None = None
    group_idx: int | None = None


class _ClearedMap(msgspec.Struct, tag="AllBlocksCleared"):
    pass


class _StoredArray(msgspec.Struct, array_like=True, tag="BlockStored"):
    block_hashes: _Hashes
    parent_block_hash: _Hash | None
    token_ids: Raw
    block_size: BlockSize
    lora_id: Raw = Raw()
    medium: _Word | None = None
    lora_name: _Word | None = None
    extra_keys: Raw = Raw()
    group_idx: int | None = None
    kv_cache_spec_kind: _Word | None = None


class _RemovedArray(msgspec.Struct, array_like=True, tag="BlockRemoved"):
    block_hashes: _Hashes
    medium: _Word | None = None
    group_idx: int | None = None


class _ClearedArray(msgspec.Struct, array_like=True, tag="AllBlocksCleared"):
    pass


class _KindMap(msgspec.Struct):
    type: str


class _KindArray(msgspec.Struct, array_like=True):
    type: str


_KINDS: Final = frozenset(("BlockStored", "BlockRemoved", "AllBlocksCleared"))
_Wire = _StoredMap | _RemovedMap | _ClearedMap | _StoredArray | _RemovedArray | _ClearedArray

_BATCHES: Final = (msgspec.msgpack.Decoder(_BatchArray), msgspec.msgpack.Decoder(_BatchMap))
_EVENTS: Final = (
    msgspec.msgpack.Decoder(_StoredArray | _RemovedArray | _ClearedArray),
    msgspec.msgpack.Decoder(_StoredMap | _RemovedMap | _ClearedMap),
)
_KINDS_SEEN: Final = (msgspec.msgpack.Decoder(_KindArray), msgspec.msgpack.Decoder(_KindMap))
_ENCODER: Final = msgspec.msgpack.Encoder()


def _no_content(*_: object) -> None:
    """Our own engine publishes none, and of others it is not read."""


def decode_batch(payload: bytes, content: ReadContent = _no_content) -> Batch:
    """A batch as any engine encodes it; WireError when it is malformed or over a bound.

    content   makes what blocks hold of (token ids, extra keys, adapter), all but the last still encoded
    """
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise WireError(f"a batch is larger than {MAX_PAYLOAD_BYTES} bytes")
    try:
        wire = _BATCHES[_is_map(payload)].decode(payload)
        events = [event for raw in wire.events if (event := _event(raw, content)) is not None]
    except (msgspec.DecodeError, RecursionError):
        raise WireError("malformed batch of block events") from None
    return Batch(wire.ts, events, wire.data_parallel_rank, wire.epoch, len(wire.events) - len(events))


def _event(raw: Raw, content: ReadContent) -> Event | None:
    """The event in our normal form, None when its kind or medium is not known, or its blocks are no whole prefix."""
    form = _is_map(raw)
    try:
        return _normal(_EVENTS[form].decode(raw), content)
    except msgspec.ValidationError:
        if _KINDS_SEEN[form].decode(raw).type in _KINDS:
            raise
        return None


def _normal(wire: _Wire, content: ReadContent) -> Event | None:
    if isinstance(wire, _ClearedMap | _ClearedArray):
        return AllBlocksCleared()
    tier = Tier.DEVICE if wire.medium is None else _MEDIA.get(wire.medium.upper())
    if tier is None:
        return None
    hashes = [_key(value) for value in wire.block_hashes]
    if isinstance(wire, _RemovedMap):
        return BlockRemoved(hashes, tier, wire.reason, wire.group_idx)
    if isinstance(wire, _RemovedArray):
        return BlockRemoved(hashes, tier, None, wire.group_idx)
    if wire.kv_cache_spec_kind not in _WHOLE_PREFIX:
        return None
    parent = None if wire.parent_block_hash is None else _key(wire.parent_block_hash)
    read = content(bytes(wire.token_ids), bytes(wire.extra_keys), wire.lora_name)
    return BlockStored(hashes, parent, wire.block_size, tier, wire.group_idx, read)


def _key(value: int | bytes) -> bytes:
    return value if isinstance(value, bytes) else _INT_HASH.pack(value & _U64)


def _is_map(payload: bytes | Raw) -> bool:
    """Whether a msgpack value is a map, told by its first byte (msgpack specification: fixmap, map 16, map 32)."""
    first = bytes(memoryview(payload)[:1])
    return b"\x80" <= first <= b"\x8f" or first in (b"\xde", b"\xdf")


def encode_batch(batch: Batch) -> bytes:
    """A batch as our worker publishes it: map events, hashes as bin, no token ids, medium by tier name."""
    return _ENCODER.encode([batch.ts, [_encoded(event) for event in batch.events], batch.dp_rank, batch.epoch])


def _encoded(event: Event) -> dict[str, Any]:
    match event:
        case BlockStored():
            return {
                "type": "BlockStored",
                "block_hashes": event.hashes,
                "parent_block_hash": event.parent,
                "token_ids": [],
                "block_size": event.block_size,
                "medium": event.tier.name,
            } | _group(event)
        case BlockRemoved():
            removed = {"type": "BlockRemoved", "block_hashes": event.hashes, "medium": event.tier.name}
            return removed | {"reason": event.reason} | _group(event)
        case AllBlocksCleared():
            return {"type": "AllBlocksCleared"}


def _group(event: BlockStored | BlockRemoved) -> dict[str, Any]:
    return {} if event.group is None else {"group_idx": event.group}
