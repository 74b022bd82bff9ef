"""The wire of a reply: chunks of a stream and the plain completion, as the official SDK types them."""

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from gateway.reuse import Reuse

FinishReason = Literal["stop", "length", "tool_calls"]


class TopLogprob(msgspec.Struct):
    token: str
    logprob: float
    bytes: list[int]


class Logprob(msgspec.Struct):
    """One generated token. `bytes` is exact where `token` is half a character; no alternatives are []."""

    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TopLogprob]


class Logprobs(msgspec.Struct):
    content: list[Logprob]


class PromptDetails(msgspec.Struct):
    """`cached_tokens` is always there; 0 is an answer too."""

    cached_tokens: int = 0


class CompletionDetails(msgspec.Struct):
    reasoning_tokens: int = 0


class Usage(msgspec.Struct):
    """Tokens. The prompt counts once, whatever `n` is. `saltway` is our own; SDKs keep it as an extra."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0
    prompt_tokens_details: PromptDetails = msgspec.field(default_factory=PromptDetails)
    completion_tokens_details: CompletionDetails = msgspec.field(default_factory=CompletionDetails)
    saltway: Reuse | UnsetType = UNSET


class CalledFunction(msgspec.Struct):
    arguments: str
    name: str | UnsetType = UNSET


class CallDelta(msgspec.Struct):
    """The first of a call has id, type and name; later ones only add arguments, and are joined by index."""

    index: int
    function: CalledFunction
    id: str | UnsetType = UNSET
    type: Literal["function"] | UnsetType = UNSET


class Delta(msgspec.Struct):
    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType = UNSET
    tool_calls: list[CallDelta] | UnsetType = UNSET


class ChunkChoice(msgspec.Struct):
    index: int
    delta: Delta
    logprobs: Logprobs | None = None
    finish_reason: FinishReason | None = None


class Chunk(msgspec.Struct):
    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    choices: list[ChunkChoice]
    usage: Usage | UnsetType = UNSET


class Call(msgspec.Struct):
    id: str
    type: Literal["function"]
    function: CalledFunction


class ReplyMessage(msgspec.Struct):
    """`content` is null when there are only calls; `tool_calls` is absent, never null, when there are none."""

    role: Literal["assistant"]
    content: str | None
    refusal: None = None
    tool_calls: list[Call] | UnsetType = UNSET


class Choice(msgspec.Struct):
    index: int
    message: ReplyMessage
    logprobs: Logprobs | None
    finish_reason: FinishReason


class Completion(msgspec.Struct):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[Choice]
    usage: Usage
