"""Everything that a worker holds, in pieces, so that a large snapshot keeps nobody waiting while it is decoded."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from cacheplane.wire.batches import BlockSize, HashBytes, WireError
from cacheplane.wire.messages import NO_SEQ

MAX_SNAPSHOT_BYTES: Final = 256 << 20
SNAPSHOT_PIECE: Final = 512  # blocks that are encoded, and so decoded, at a time
MAX_SNAPSHOT_PIECES: Final = 8_192


class SnapshotBlock(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One block on one tier; a block on two tiers is listed twice."""

    hash: HashBytes
    parent: HashBytes | None
    tier: Annotated[int, Meta(ge=0, le=3)]  # a Tier


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All blocks of a worker, parents before children.

    seq      watermark: the last sequence number that is already included, -1 if none
    blocks   of one that was decoded they are read piece by piece, as they are iterated over, once or more often;
             WireError when the next piece is malformed
    """

    epoch: int
    seq: int
    block_size: int
    blocks: Iterable[SnapshotBlock]


class _SnapshotWire(msgspec.Struct):
    """`pieces`: blocks, some at a time, each an encoded array of its own, so that a large snapshot keeps nobody waiting
    while it is decoded."""

    epoch: int
    seq: Annotated[int, Meta(ge=NO_SEQ)]
    block_size: BlockSize
    pieces: Annotated[list[memoryview], Meta(max_length=MAX_SNAPSHOT_PIECES)]


class _Pieces:
    """Blocks as they lie on the wire, decoded as they are asked for."""

    def __init__(self, pieces: Sequence[memoryview]) -> None:
        self._pieces = pieces

    def __iter__(self) -> Iterator[SnapshotBlock]:
        for piece in self._pieces:
            try:
                yield from _PIECE.decode(piece)
            except (msgspec.DecodeError, RecursionError):
                raise WireError("malformed piece of a snapshot") from None


_SNAPSHOT: Final = msgspec.msgpack.Decoder(_SnapshotWire)
_PIECE: Final = msgspec.msgpack.Decoder(Annotated[list[SnapshotBlock], Meta(max_length=SNAPSHOT_PIECE)])
_ENCODER: Final = msgspec.msgpack.Encoder()


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """A map of `epoch`, `seq`, `block_size` and `pieces`, each a bin with an array of up to SNAPSHOT_PIECE blocks."""
    blocks = list(snapshot.blocks)
    pieces = [_ENCODER.encode(blocks[at : at + SNAPSHOT_PIECE]) for at in range(0, len(blocks), SNAPSHOT_PIECE)]
    head = {"epoch": snapshot.epoch, "seq": snapshot.seq, "block_size": snapshot.block_size}
    return _ENCODER.encode(head | {"pieces": pieces})


def decode_snapshot(payload: bytes | bytearray) -> Snapshot:
    """The inverse of `encode_snapshot`, in time that hardly depends on its size, for its blocks are decoded later.

    The payload is not copied. WireError when it is malformed or over a bound.
    """
    if len(payload) > MAX_SNAPSHOT_BYTES:
        raise WireError(f"a snapshot is larger than {MAX_SNAPSHOT_BYTES} bytes")
    try:
        wire = _SNAPSHOT.decode(payload)
    except (msgspec.DecodeError, RecursionError):
        raise WireError("malformed snapshot") from None
    return Snapshot(wire.epoch, wire.seq, wire.block_size, _Pieces(wire.pieces))
