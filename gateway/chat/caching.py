"""What a client asks of its own cache: a division of it, to be left out of it, to be kept longer."""

import re
from collections.abc import Sequence
from typing import Literal

import msgspec

from gateway.chat import wire
from gateway.chat.turns import short
from gateway.errors import BadRequestError

MAX_TTL_SECONDS = 7 * 24 * 3600
MAX_PRIORITY = 100
PROMPT_CACHE_PRIORITY = 60
PROMPT_CACHE_TTL = "30m"  # of prompt_cache_options, when it names none
RETENTION_SECONDS = {"in_memory": 600, "in-memory": 600, "24h": 24 * 3600}
_DURATION = re.compile(r"([0-9]{1,6})([smh])")
_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600}


class Breakpoint(msgspec.Struct, frozen=True):
    """The end of a part of a message: `characters` of the message's text are before it."""

    message: int
    characters: int


class Retention(msgspec.Struct, frozen=True):
    """A lease on the blocks of this conversation.

    priority      0 to 100; what is not under lease has 35
    ttl_seconds   from the moment when no request uses the blocks any more
    session       the next lease of the same session takes the place of this one; "" stands alone
    source        where it was asked for: in our own extension, or in OpenAI's prompt cache fields
    until         where it ends; None for the end of the answer
    """

    priority: int
    ttl_seconds: float
    session: str = ""
    source: Literal["request", "openai"] = "request"
    until: Breakpoint | None = None


class CacheOptions(msgspec.Struct, frozen=True):
    """What to make of the blocks of this conversation.

    namespace   the client's own division of its tenant's cache, "" is none
    store       False leaves no block behind
    explicit    only what the client's own breakpoints mark is to be kept
    """

    namespace: str = ""
    store: bool = True
    retention: Retention | None = None
    explicit: bool = False


def parse_cache(body: wire.Body) -> CacheOptions:
    """From the `saltway` object of a body, and OpenAI's prompt cache fields. Raises BadRequestError naming the field.

    Our own retention wins over OpenAI's, which means nothing for what is not stored.
    """
    extension = body.saltway or wire.Extension()
    store = extension.store is not False
    openai = _prompt_cache(body)
    return CacheOptions(
        namespace=short(extension.namespace or "", "saltway.namespace"),
        store=store,
        retention=_retention(extension.retention) if extension.retention else openai if store else None,
        explicit=body.prompt_cache_options is not None and body.prompt_cache_options.mode == "explicit",
    )


def _retention(spec: wire.RetentionSpec) -> Retention:
    _within(spec.priority, MAX_PRIORITY, "saltway.retention.priority")
    _within(spec.ttl_seconds, MAX_TTL_SECONDS, "saltway.retention.ttl_seconds")
    session = short(spec.session or "", "saltway.retention.session")
    return Retention(spec.priority, spec.ttl_seconds, session)


def _prompt_cache(body: wire.Body) -> Retention | None:
    """A lease of `prompt_cache_options`, or of `prompt_cache_retention`, which it has replaced.

    Breakpoints of the client's own end it with the last part that they mark: in the mode `explicit`, where without any
    there is none, and where nothing else is said. Otherwise all is kept anyway.

    source    OpenAI's API reference of chat completions, which refuses the two together as well
    """
    options, retention = body.prompt_cache_options, body.prompt_cache_retention
    if options is not None and retention is not None:
        message = "`prompt_cache_options` takes its place; send one of the two."
        raise BadRequestError(message, param="prompt_cache_retention", code="invalid_value")
    if retention is not None:
        return _openai(_chosen(retention, RETENTION_SECONDS, "prompt_cache_retention"))
    seconds = _seconds((options and options.ttl) or PROMPT_CACHE_TTL, "prompt_cache_options.ttl")
    modes = {"implicit": 1, "explicit": 0}  # breakpoints of OpenAI's own choice
    if options is not None and _chosen(options.mode or "implicit", modes, "prompt_cache_options.mode"):
        return _openai(seconds)
    last = _last_breakpoint(body.messages)
    return None if last is None else _openai(seconds, last)


def _last_breakpoint(turns: Sequence[wire.Turn]) -> Breakpoint | None:
    for index in reversed(range(len(turns))):
        parts = turns[index].content
        if not isinstance(parts, list):
            continue
        marked = [place for place, part in enumerate(parts) if part.prompt_cache_breakpoint is not None]
        if marked:
            texts = (part.text or part.refusal or "" for part in parts[: marked[-1] + 1])
            return Breakpoint(index, len("\n".join(texts)))
    return None


def _openai(seconds: float, until: Breakpoint | None = None) -> Retention:
    return Retention(PROMPT_CACHE_PRIORITY, seconds, source="openai", until=until)


def _seconds(text: str, param: str) -> int:
    """Of a duration such as "30m"."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise BadRequestError("A whole number and s, m or h, as in 30m.", param=param, code="invalid_value")
    seconds = int(match[1]) * _UNIT_SECONDS[match[2]]
    _within(seconds, MAX_TTL_SECONDS, param)
    return seconds


def _chosen(value: str, meaning: dict[str, int], param: str) -> int:
    if value not in meaning:
        raise BadRequestError(f"Must be one of {', '.join(meaning)}.", param=param, code="invalid_value")
    return meaning[value]


def _within(value: float, most: int, param: str) -> None:
    if not 0 <= value <= most:
        raise BadRequestError(f"Must be between 0 and {most}.", param=param, code="out_of_range")
