"""A JSON body into a typed value, with errors that name the field."""

import json
import re
from contextlib import suppress
from typing import Any, TypeVar

import msgspec

from gateway.errors import BadRequestError

T = TypeVar("T")

_AT = re.compile(r"^(?P<what>.*?)(?: - at `(?P<path>\$.*)`)?$", re.DOTALL)
_MISSING = re.compile(r"missing required field `(?P<field>[^`]+)`")
_SURROGATE = re.compile("[\ud800-\udfff]")


def decode(body: bytes, kind: type[T]) -> T:
    """`body` as `kind`. Raises BadRequestError for anything else that bytes can be; nothing escapes it."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise _wrong_type(str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise _malformed(body) from None
    except RecursionError:
        raise BadRequestError("The request body is nested too deeply.", code="invalid_json") from None


def _wrong_type(text: str) -> BadRequestError:
    """msgspec says "Expected `int`, got `str` - at `$.n`"; OpenAI's envelope has a place of its own for the path."""
    match = _AT.match(text)
    assert match is not None
    what, path = match["what"], (match["path"] or "$").removeprefix("$").removeprefix(".")
    missing = _MISSING.search(what)
    if missing is not None:
        path = f"{path}.{missing['field']}" if path else missing["field"]
        return BadRequestError("This field is required.", param=path, code="missing")
    if what.startswith("Invalid enum value"):  # and quotes it
        return BadRequestError("This is none of its values.", param=path or None, code="invalid_value")
    return BadRequestError(f"{what}.", param=path or None, code="invalid_type")


def _malformed(body: bytes) -> BadRequestError:
    """Say where a lone surrogate sits; for other bad JSON there is no field to name."""
    message, param = "The request body is not valid JSON.", None
    with suppress(ValueError, RecursionError):
        param = _surrogate_path(json.loads(body), "")
    if param is not None:
        message = "A string holds half of a surrogate pair, which is not a character."
    return BadRequestError(message, param=param, code="invalid_json")


def _surrogate_path(value: Any, path: str) -> str | None:
    if isinstance(value, str):
        return path if _SURROGATE.search(value) else None
    found: str | None = None
    if isinstance(value, dict):
        for key, inner in value.items():
            # A name that is broken itself cannot be quoted: point at the object.
            at = path if _SURROGATE.search(key) else f"{path}.{key}".lstrip(".")
            found = found or (path if at is path and key else _surrogate_path(inner, at))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            found = found or _surrogate_path(inner, f"{path}[{index}]")
    return found
