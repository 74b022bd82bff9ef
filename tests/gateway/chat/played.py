"""A reply played by hand: requests, and the frames that a worker would send."""

import itertools
import json
from collections.abc import Callable, Sequence
from typing import Any

from gateway.chat.reply import ReplyHead
from gateway.chat.request import ChatRequest, parse_chat
from gateway.frames import Cached, DeltaFrame, EndFrame, FinishFrame, Frame, StartFrame, Timings, TokenLogprob

HEAD = ReplyHead(id="chatcmpl-1", model="smollm2", created=1700000000)
CALL = '<tool_call>\n{"name": "f", "arguments": {"x": "1"}}\n</tool_call>'
TOOLS = [{"type": "function", "function": {"name": "f"}}, {"type": "function", "function": {"name": "g"}}]
START = StartFrame(20, Cached(device=16))


def request(**fields: Any) -> ChatRequest:
    return parse_chat(json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}], **fields}).encode())


def ids() -> Callable[[], str]:
    numbers = itertools.count()
    return lambda: f"call_{next(numbers)}"


def spelled(token: int) -> bytes:
    return bytes([token])


def frames(pieces: Sequence[str], *, n: int = 1, reason: Any = "stop", logprobs: bool = False) -> list[Frame]:
    """One delta a piece and choice, tokens numbered from 65."""
    made: list[Frame] = [START]
    for number, piece in enumerate(pieces):
        entry = [TokenLogprob(65 + number % 26, -0.5, [(65, -0.5), (66, float("-inf"))])] if logprobs else None
        made += [DeltaFrame(index, piece, [65 + number % 26], entry) for index in range(n)]
    made += [FinishFrame(index, reason, None, len(pieces)) for index in range(n)]
    return [*made, EndFrame(20, len(pieces) * n, Timings())]
