"""Other shapes than JSON for an answer: a regular expression, a choice of texts, a grammar.

source   vLLM's `structured_outputs`, and the `guided_*` fields that it had before
"""

from collections.abc import Callable
from typing import Any

import msgspec

from gateway.chat import wire
from gateway.chat.messages import ResponseFormat
from gateway.chat.tooling import parse_format
from gateway.errors import BadRequestError
from gateway.schemas.limits import measure

MAX_PATTERN = 4096
MAX_GRAMMAR = 64 * 1024
MAX_CHOICES = 500
MAX_CHOICE = 1024


def parse_shape(raw: wire.Body) -> ResponseFormat:
    """What the answer must look like, whichever field says so. BadRequestError when two do, or one is wrong."""
    asked = [(at, kind, value) for at, kind, value in _fields(raw) if value is not None and value is not False]
    usual = parse_format(raw.response_format)
    if len(asked) + (usual.type != "text") > 1:
        param = asked[1][0] if len(asked) > 1 else asked[0][0]
        raise BadRequestError("Only one constraint on the answer can hold.", param=param, code="invalid_value")
    for at, kind, value in asked:
        return _KINDS[kind](value, at)
    if raw.structured_outputs is not None:
        message = "One of json, json_object, regex, choice and grammar is required."
        raise BadRequestError(message, param="structured_outputs", code="missing")
    return usual


def _fields(raw: wire.Body) -> list[tuple[str, str, Any]]:
    shape = raw.structured_outputs or wire.Structured()
    return [
        *((f"structured_outputs.{kind}", kind, getattr(shape, kind)) for kind in _KINDS),
        *((f"guided_{kind}", kind, getattr(raw, f"guided_{kind}")) for kind in ("json", "regex", "choice", "grammar")),
    ]


def _json(value: str | dict[str, Any], at: str) -> ResponseFormat:
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value, type=dict[str, Any])
        except (msgspec.MsgspecError, RecursionError):
            raise BadRequestError("Must be a JSON Schema.", param=at, code="invalid_value") from None
    measure(value, at)
    return ResponseFormat("json_schema", value, at=at)


def _json_object(_value: bool, at: str) -> ResponseFormat:
    return ResponseFormat("json_object", at=at)


def _regex(value: str, at: str) -> ResponseFormat:
    return ResponseFormat("regex", text=_sized(value, MAX_PATTERN, at), at=at)


def _grammar(value: str, at: str) -> ResponseFormat:
    return ResponseFormat("grammar", text=_sized(value, MAX_GRAMMAR, at), at=at)


def _choice(value: list[str], at: str) -> ResponseFormat:
    if not 0 < len(value) <= MAX_CHOICES:
        raise BadRequestError(f"Must be 1 to {MAX_CHOICES} texts.", param=at, code="out_of_range")
    for index, text in enumerate(value):
        _sized(text, MAX_CHOICE, f"{at}[{index}]")
    return ResponseFormat("choice", choices=tuple(value), at=at)


_KINDS: dict[str, Callable[[Any, str], ResponseFormat]] = {
    "json": _json,
    "json_object": _json_object,
    "regex": _regex,
    "choice": _choice,
    "grammar": _grammar,
}


def _sized(text: str, most: int, at: str) -> str:
    if not 0 < len(text) <= most:
        raise BadRequestError(f"Must have 1 to {most} characters.", param=at, code="out_of_range")
    return text
