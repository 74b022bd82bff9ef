"""ZMQ frames: a message, and how messages are asked for again.

A message is [topic, sequence, payload]: the sequence 8 bytes big-endian and signed, the payload a batch.
Source: vLLM 0.32, as SGLang has it too.
"""

import struct
from collections.abc import Sequence
from typing import Final

import msgspec

from cacheplane.wire.batches import WireError

TOPIC: Final = b"kv"
NO_SEQ: Final = -1  # "none yet" in a snapshot's watermark; the end marker in a replay

_SEQ: Final = struct.Struct(">q")


class Message(msgspec.Struct, frozen=True):
    """One ZMQ message, its payload not yet decoded."""

    topic: bytes
    seq: int
    payload: bytes


def encode_message(seq: int, payload: bytes, topic: bytes = TOPIC) -> list[bytes]:
    """The three frames that the publisher sends."""
    return [topic, _SEQ.pack(seq), payload]


def decode_message(frames: Sequence[bytes]) -> Message:
    """The inverse of `encode_message`; WireError unless there are three frames and a sequence of 8 bytes."""
    if len(frames) != 3 or len(frames[1]) != _SEQ.size:
        raise WireError("a message is a topic, a sequence of 8 bytes and a payload")
    return Message(frames[0], _SEQ.unpack(frames[1])[0], frames[2])


def encode_replay_request(seq: int) -> list[bytes]:
    """What a DEALER sends to be given again every message from `seq` on that is still buffered."""
    return [b"", _SEQ.pack(seq)]


def decode_replay_request(frames: Sequence[bytes]) -> tuple[bytes, int]:
    """(identity of the asker, first sequence wanted) from what the worker's ROUTER receives."""
    if len(frames) != 3 or frames[1] != b"" or len(frames[2]) != _SEQ.size:
        raise WireError("a replay request is an identity, an empty frame and a sequence of 8 bytes")
    return frames[0], _SEQ.unpack(frames[2])[0]


def encode_replay(message: Message | None) -> list[bytes]:
    """One answer to a replay request, to go behind the asker's identity; None ends the replay."""
    if message is None:
        return [b"", *encode_message(NO_SEQ, b"", b"")]
    return [b"", *encode_message(message.seq, message.payload, message.topic)]


def decode_replay(frames: Sequence[bytes]) -> Message | None:
    """What the DEALER receives; None is the end marker (sequence -1)."""
    if not frames or frames[0] != b"":
        raise WireError("a replay answer starts with an empty frame")
    message = decode_message(frames[1:])
    return None if message.seq == NO_SEQ else message
