"""A second opinion on generated JSON, from another implementation than the one that constrained it."""

import json
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import msgspec
from jsonschema import Draft202012Validator, ValidationError
from jsonschema.validators import extend
from llguidance import LLMatcher, LLTokenizer
from referencing import Registry

MAX_OUTPUT_CHARACTERS = 256 * 1024


class Violation(NamedTuple):
    """`keyword` is safe to log; `path` (into the schema) holds names that the client chose."""

    keyword: str
    path: tuple[str | int, ...] = ()


def check_output(schema: dict[str, Any], text: str) -> Violation | None:
    """Whether `text` is JSON that `schema`, which the gate admitted, accepts; None when it is.

    References are resolved inside the schema only, patterns by an engine without backtracking, and the text is bounded.
    """
    if len(text) > MAX_OUTPUT_CHARACTERS:
        return Violation("size")
    try:
        instance = msgspec.json.decode(text)
        error = next(_validator(schema).iter_errors(instance), None)
    except msgspec.MsgspecError:
        return Violation("json")
    except RecursionError:
        return Violation("depth")
    return None if error is None else Violation(str(error.validator), tuple(error.absolute_schema_path))


def _validator(schema: dict[str, Any]) -> Any:
    return _Validator(schema, registry=Registry())


def _pattern(_validator: Any, pattern: str, instance: Any, _schema: dict[str, Any]) -> Iterator[ValidationError]:
    if isinstance(instance, str) and not _matches(pattern, instance):
        yield ValidationError("does not match")


def _pattern_properties(
    validator: Any, patterns: dict[str, Any], instance: Any, _schema: dict[str, Any]
) -> Iterator[ValidationError]:
    if isinstance(instance, dict):
        for pattern, subschema in patterns.items():
            for key in instance:
                if _matches(pattern, key):
                    yield from validator.descend(instance[key], subschema, path=key, schema_path=pattern)


def _additional_properties(
    validator: Any, additional: Any, instance: Any, schema: dict[str, Any]
) -> Iterator[ValidationError]:
    if not isinstance(instance, dict):
        return
    for key in instance:
        patterns = schema.get("patternProperties", {})
        if key in schema.get("properties", {}) or any(_matches(pattern, key) for pattern in patterns):
            continue
        if additional is False:
            yield ValidationError("is not declared")
        else:
            yield from validator.descend(instance[key], additional, path=key)


# Python's `re` takes seconds for 26 characters of ^(a+)+$, so jsonschema's three users of it are replaced.
_Validator = extend(
    Draft202012Validator,
    {
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional_properties,
    },
)


def _matches(pattern: str, text: str) -> bool:
    matcher = LLMatcher(_tokenizer(), "start: %json " + json.dumps({"type": "string", "pattern": pattern}))
    spelled = json.dumps(text, ensure_ascii=False).encode()
    # A control character is spelled in two ways, of which a pattern knows one: no opinion.
    if b"\\u" in spelled or matcher.is_error():
        return True
    return matcher.try_consume_tokens(list(spelled)) == len(spelled) and matcher.is_accepting()


@cache
def _tokenizer() -> LLTokenizer:
    """One token for each byte: text is matched without any model."""
    return LLTokenizer("byte")
