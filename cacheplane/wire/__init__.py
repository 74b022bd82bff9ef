"""The block event wire: what workers say of their blocks, from any engine, in one normal form.

owns            batches of block events, snapshots, the ZMQ frames around them and their replay; all their bounds
does not own    sockets, what a message means for the index, tokens and salts
front door      decode_batch, decode_snapshot, decode_message and their inverses

| file      | noun                                                        |
|-----------|-------------------------------------------------------------|
| batches   | Batch, its events, Tier: what one message says              |
| messages  | Message: the frames of ZMQ, and asking for them again       |
| snapshots | Snapshot: all blocks of a worker, in pieces                 |

Nothing on this wire is trusted: sizes are bounded before anything is built, and what is malformed raises WireError and
nothing else.
"""

from cacheplane.wire.batches import (
    MAX_EVENTS,
    MAX_HASH_BYTES,
    MAX_HASHES,
    MAX_PAYLOAD_BYTES,
    AllBlocksCleared,
    Batch,
    BlockRemoved,
    BlockStored,
    Content,
    Event,
    ReadContent,
    Tier,
    WireError,
    decode_batch,
    encode_batch,
)
from cacheplane.wire.messages import (
    NO_SEQ,
    TOPIC,
    Message,
    decode_message,
    decode_replay,
    decode_replay_request,
    encode_message,
    encode_replay,
    encode_replay_request,
)
from cacheplane.wire.snapshots import (
    MAX_SNAPSHOT_BYTES,
    MAX_SNAPSHOT_PIECES,
    SNAPSHOT_PIECE,
    Snapshot,
    SnapshotBlock,
    decode_snapshot,
    encode_snapshot,
)

__all__ = [
    "MAX_EVENTS",
    "MAX_HASHES",
    "MAX_HASH_BYTES",
    "MAX_PAYLOAD_BYTES",
    "MAX_SNAPSHOT_BYTES",
    "MAX_SNAPSHOT_PIECES",
    "NO_SEQ",
    "SNAPSHOT_PIECE",
    "TOPIC",
    "AllBlocksCleared",
    "Batch",
    "BlockRemoved",
    "BlockStored",
    "Content",
    "Event",
    "Message",
    "ReadContent",
    "Snapshot",
    "SnapshotBlock",
    "Tier",
    "WireError",
    "decode_batch",
    "decode_message",
    "decode_replay",
    "decode_replay_request",
    "decode_snapshot",
    "encode_batch",
    "encode_message",
    "encode_replay",
    "encode_replay_request",
    "encode_snapshot",
]
