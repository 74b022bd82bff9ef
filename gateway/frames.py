"""The frames of a generation, as a worker sends them: one JSON object a line, told apart by `type`."""

from typing import Literal

import msgspec

from cacheplane.report import Occupancy
from gateway.worker_wire import Count, Milliseconds, TokenId


class Cached(msgspec.Struct):
    """Prompt tokens that were not computed, by the tier that they came from.

    partial   copied from a block that only begins like the prompt's next one, or from where an earlier turn ended
    """

    device: Count = 0
    host: Count = 0
    disk: Count = 0
    partial: Count = 0

    @property
    def total(self) -> int:
        """Of whole blocks: what an index of blocks can predict, clients are told, and misses are attributed against."""
        return self.device + self.host + self.disk


class StartFrame(msgspec.Struct, tag_field="type", tag="start"):
    """First: the prompt has been admitted. `queue_ms` is the time it waited for that."""

    prompt_tokens: Count
    cached: Cached
    queue_ms: Milliseconds = 0.0


class TokenLogprob(msgspec.Struct):
    """Natural log probability of the chosen token, and the likeliest alternatives as [token id, logprob]."""

    token: TokenId
    logprob: float
    top: list[tuple[TokenId, float]] = []


class DeltaFrame(msgspec.Struct, tag_field="type", tag="delta"):
    """Text that choice `index` has gained, whole characters only; `tokens` are the ids accepted for it."""

    index: Count
    text: str
    tokens: list[TokenId] = []
    logprobs: list[TokenLogprob] | None = None


class FinishFrame(msgspec.Struct, tag_field="type", tag="finish"):
    """Choice `index` is complete. `stop` is the stop string that matched, which is not part of the text."""

    index: Count
    reason: Literal["stop", "length", "abort", "deadline"]
    stop: str | None = None
    completion_tokens: Count = 0


class Timings(msgspec.Struct):
    """Milliseconds in the worker: waiting, computing the prompt, generating."""

    queue_ms: float = 0.0
    prefill_ms: float = 0.0
    decode_ms: float = 0.0


class EndFrame(msgspec.Struct, tag_field="type", tag="end"):
    """Last: all choices are complete. `completion_tokens` is their sum; the prompt counts once.

    load   what the worker has left to do; None from one that does not tell
    """

    prompt_tokens: Count
    completion_tokens: Count
    timings: Timings
    load: Occupancy | None = None


class ErrorFrame(msgspec.Struct, tag_field="type", tag="error"):
    """Last, instead of the end: the worker could not go on."""

    code: str
    message: str


Frame = StartFrame | DeltaFrame | FinishFrame | EndFrame | ErrorFrame
