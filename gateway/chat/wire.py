"""The body of POST /v1/chat/completions as it may arrive: every field optional, null or absent alike."""

from typing import Any, Literal

import msgspec


class CacheBreakpoint(msgspec.Struct):
    mode: Literal["explicit"] | None = None


class Part(msgspec.Struct):
    type: str
    text: str | None = None
    refusal: str | None = None
    prompt_cache_breakpoint: CacheBreakpoint | None = None


class Function(msgspec.Struct):
    name: str
    arguments: str | None = None


class Call(msgspec.Struct):
    id: str | None = None
    type: str | None = None
    function: Function | None = None


class Turn(msgspec.Struct):
    role: str
    content: str | list[Part] | None = None
    refusal: str | None = None
    name: str | None = None
    tool_calls: list[Call] | None = None
    tool_call_id: str | None = None


class FunctionSpec(msgspec.Struct):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class ToolSpec(msgspec.Struct):
    type: str
    function: FunctionSpec | None = None


class Named(msgspec.Struct):
    name: str


class Allowed(msgspec.Struct):
    type: str | None = None
    function: Named | None = None


class AllowedTools(msgspec.Struct):
    mode: str
    tools: list[Allowed]


class Choice(msgspec.Struct):
    type: str
    function: Named | None = None
    allowed_tools: AllowedTools | None = None


class SchemaSpec(msgspec.Struct):
    name: str
    description: str | None = None
    schema: dict[str, Any] | None = None
    strict: bool | None = None


class Format(msgspec.Struct):
    type: str
    json_schema: SchemaSpec | None = None


class Structured(msgspec.Struct):
    """vLLM's extension: one of these."""

    json: str | dict[str, Any] | None = None
    json_object: bool | None = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None


class StreamSpec(msgspec.Struct):
    include_usage: bool | None = None


class RetentionSpec(msgspec.Struct):
    priority: int
    ttl_seconds: float
    session: str | None = None


class PromptCacheOptions(msgspec.Struct):
    mode: str | None = None
    ttl: str | None = None


class Extension(msgspec.Struct):
    """Our own corner of the body. There is no salt here: a caller never chooses it."""

    namespace: str | None = None
    store: bool | None = None
    retention: RetentionSpec | None = None


class Body(msgspec.Struct, kw_only=True):
    model: str
    messages: list[Turn]
    tools: list[ToolSpec] | None = None
    tool_choice: str | Choice | None = None
    functions: list[msgspec.Raw] | None = None
    parallel_tool_calls: bool | None = None
    response_format: Format | None = None
    structured_outputs: Structured | None = None
    guided_json: str | dict[str, Any] | None = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None
    modalities: list[str] | None = None
    web_search_options: dict[str, Any] | None = None
    stream: bool | None = None
    stream_options: StreamSpec | None = None
    n: int | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    min_tokens: int | None = None
    ignore_eos: bool | None = None
    stop_token_ids: list[int] | None = None
    user: str | None = None
    prompt_cache_retention: str | None = None
    prompt_cache_options: PromptCacheOptions | None = None
    saltway: Extension | None = None
