"""A chat completion request: what was asked, checked, with every default filled in."""

from itertools import takewhile
from typing import TypeVar

import msgspec

from gateway.chat import wire
from gateway.chat.body import decode
from gateway.chat.caching import CacheOptions, parse_cache
from gateway.chat.messages import Message, ResponseFormat, StreamOptions, Tool, ToolChoice
from gateway.chat.structured import parse_shape
from gateway.chat.tooling import parse_choice, parse_tools
from gateway.chat.turns import parse_messages, short
from gateway.errors import BadRequestError

DEFAULT_MAX_N = 8
MAX_STOPS = 4
MAX_STOP_CHARACTERS = 1024
MAX_STOP_TOKENS = 64
MAX_BIASES = 1024
LEAST_PENALTY, MOST_PENALTY = 0.01, 10.0  # of repetition, which divides
MAX_TOKENS = 2**31 - 1
N = TypeVar("N", int, float)


class ChatRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What the rest of the gateway reads; no field is ever null where null means the default.

    max_tokens         tokens, of either field (`max_completion_tokens` wins); None: as many as fit
    top_logprobs       alternatives a token, 0 to 20; meaningful with `logprobs`
    cache              what the client asks of its tenant's cache

    top_k (0 for all), min_p, repetition_penalty, min_tokens, ignore_eos and stop_token_ids are vLLM's extensions.
    """

    model: str
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = ToolChoice()
    parallel_tool_calls: bool = True
    response_format: ResponseFormat = ResponseFormat()
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()
    n: int = 1
    stop: tuple[str, ...] = ()
    seed: int | None = None
    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens: int | None = None
    logprobs: bool = False
    top_logprobs: int = 0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: dict[str, float] = {}
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    min_tokens: int = 0
    ignore_eos: bool = False
    stop_token_ids: tuple[int, ...] = ()
    user: str | None = None
    cache: CacheOptions = CacheOptions()

    @property
    def may_call(self) -> bool:
        """Whether calls are looked for in the output; with "none" such markup is plain text."""
        return bool(self.tools) and self.tool_choice.mode != "none"

    @property
    def answered_calls(self) -> tuple[str, ...]:
        """The ids of the calls that this turn brings the results of: tool turns behind the last of the assistant."""
        turns = takewhile(lambda turn: turn.role != "assistant", reversed(self.messages))
        return tuple(turn.tool_call_id for turn in turns if turn.role == "tool" and turn.tool_call_id)

    @property
    def callable_tools(self) -> tuple[Tool, ...]:
        names = self.tool_choice.names
        return self.tools if names is None else tuple(tool for tool in self.tools if tool.name in names)


def parse_chat(body: bytes, max_n: int = DEFAULT_MAX_N) -> ChatRequest:
    """Read a request body. Unknown fields are ignored; explicit null is absent.

    Raises BadRequestError naming the field, for any bytes that are not such a request.
    """
    raw = decode(body, wire.Body)
    _refuse_unsupported(raw)
    return _request(raw, max_n)


def _request(raw: wire.Body, max_n: int) -> ChatRequest:
    tools = parse_tools(raw.tools or [])
    return ChatRequest(
        model=_nonempty(raw.model, "model"),
        messages=parse_messages(raw.messages),
        tools=tools,
        tool_choice=parse_choice(raw.tool_choice, tools),
        parallel_tool_calls=raw.parallel_tool_calls is not False,
        response_format=parse_shape(raw),
        stream=raw.stream is True,
        stream_options=_stream_options(raw.stream_options),
        n=_within(raw.n, 1, 1, max_n, "n"),
        stop=_stops(raw.stop),
        seed=_seed(raw.seed),
        temperature=_within(raw.temperature, 1.0, 0.0, 2.0, "temperature"),
        top_p=_top_p(raw.top_p),
        max_tokens=_max_tokens(raw),
        logprobs=raw.logprobs is True,
        top_logprobs=_top_logprobs(raw),
        presence_penalty=_within(raw.presence_penalty, 0.0, -2.0, 2.0, "presence_penalty"),
        frequency_penalty=_within(raw.frequency_penalty, 0.0, -2.0, 2.0, "frequency_penalty"),
        logit_bias=_logit_bias(raw.logit_bias or {}),
        top_k=max(0, _within(raw.top_k, 0, -1, MAX_TOKENS, "top_k")),  # vLLM has -1 for all
        min_p=_within(raw.min_p, 0.0, 0.0, 1.0, "min_p"),
        repetition_penalty=_within(raw.repetition_penalty, 1.0, LEAST_PENALTY, MOST_PENALTY, "repetition_penalty"),
        min_tokens=_within(raw.min_tokens, 0, 0, MAX_TOKENS, "min_tokens"),
        ignore_eos=raw.ignore_eos is True,
        stop_token_ids=_stop_tokens(raw.stop_token_ids or []),
        user=raw.user,
        cache=parse_cache(raw),
    )


def _refuse_unsupported(raw: wire.Body) -> None:
    """Fields that would change the answer if they were ignored."""
    if raw.functions:
        raise BadRequestError("`functions` is not offered; use `tools`.", param="functions", code="unsupported")
    if any(modality != "text" for modality in raw.modalities or ()):
        raise BadRequestError("Only text can be generated.", param="modalities", code="unsupported")
    if raw.web_search_options is not None:
        raise BadRequestError("Nothing is searched for here.", param="web_search_options", code="unsupported")


def _within(value: N | None, default: N, least: N, most: N, param: str) -> N:
    if value is None:
        return default
    if not least <= value <= most:
        raise BadRequestError(f"Must be between {least} and {most}.", param=param, code="out_of_range")
    return value


def _seed(value: int | None) -> int | None:
    """A signed 64-bit integer."""
    return None if value is None else _within(value, 0, -(2**63), 2**63 - 1, "seed")


def _stream_options(spec: wire.StreamSpec | None) -> StreamOptions:
    return StreamOptions(spec is not None and spec.include_usage is True)


def _top_p(value: float | None) -> float:
    if value == 0:
        raise BadRequestError("Must be above 0 and at most 1.", param="top_p", code="out_of_range")
    return _within(value, 1.0, 0.0, 1.0, "top_p")


def _max_tokens(raw: wire.Body) -> int | None:
    for value, param in (
        (raw.max_completion_tokens, "max_completion_tokens"),
        (raw.max_tokens, "max_tokens"),
    ):
        if value is not None:
            return _within(value, 1, 1, MAX_TOKENS, param)
    return None


def _top_logprobs(raw: wire.Body) -> int:
    value = _within(raw.top_logprobs, 0, 0, 20, "top_logprobs")
    if value and not raw.logprobs:
        raise BadRequestError("Needs `logprobs` to be true.", param="top_logprobs", code="invalid_value")
    return value


def _stops(stop: str | list[str] | None) -> tuple[str, ...]:
    if stop is None:
        return ()
    stops = (stop,) if isinstance(stop, str) else tuple(stop)
    if len(stops) > MAX_STOPS:
        raise BadRequestError(f"At most {MAX_STOPS} stop strings.", param="stop", code="out_of_range")
    for index, text in enumerate(stops):
        if not 0 < len(text) <= MAX_STOP_CHARACTERS:
            param = "stop" if isinstance(stop, str) else f"stop[{index}]"
            message = f"A stop string has 1 to {MAX_STOP_CHARACTERS} characters."
            raise BadRequestError(message, param=param, code="out_of_range")
    return stops


def _stop_tokens(tokens: list[int]) -> tuple[int, ...]:
    if len(tokens) > MAX_STOP_TOKENS:
        raise BadRequestError(f"At most {MAX_STOP_TOKENS} tokens.", param="stop_token_ids", code="out_of_range")
    return tuple(_within(token, 0, 0, MAX_TOKENS, f"stop_token_ids[{index}]") for index, token in enumerate(tokens))


def _logit_bias(bias: dict[str, float]) -> dict[str, float]:
    if len(bias) > MAX_BIASES:
        raise BadRequestError(f"At most {MAX_BIASES} entries.", param="logit_bias", code="out_of_range")
    for token, value in bias.items():
        if not (token.isascii() and token.isdigit() and len(token) <= 9):
            raise BadRequestError("Keys are token ids.", param="logit_bias", code="invalid_value")
        _within(value, 0.0, -100.0, 100.0, f"logit_bias.{token}")
    return bias


def _nonempty(value: str, param: str) -> str:
    if not value:
        raise BadRequestError("Must not be empty.", param=param, code="invalid_value")
    return short(value, param)
