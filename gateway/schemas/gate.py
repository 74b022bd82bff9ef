"""The gate: a schema as sent goes in; one that is enforced in full comes out, or a 400 that names the keyword."""

import json
from hashlib import blake2b
from typing import Any

import msgspec
from llguidance import LLMatcher, LLParserLimits

from gateway.bounded import BoundedCache
from gateway.schemas.blame import blame
from gateway.schemas.bounds import Bounds
from gateway.schemas.cleaning import clean
from gateway.schemas.limits import measure
from gateway.schemas.narrowing import any_object, narrow
from gateway.schemas.references import check_references

CACHE_BYTES = 16 * 1024 * 1024

JSON_LAYOUT = {
    "whitespace_flexible": False,
    "item_separator": ", ",
    "key_separator": ": ",
    "json_allowed_escapes": 'bfnrt\\"',
}
"""How generated JSON is spaced and escaped: as Python's json.dumps with ensure_ascii off, and in no other way.

One spelling for each value is what lets a call, sent back as history, render to the very text that was generated.
"""

_LIMITS = LLParserLimits(verbose_errors=False)


class SchemaGate:
    """Admits schemas and remembers the ones it admitted, per partition (a tenant) and bounded in bytes.

    Admitting an unknown schema takes 0.3 to 50 ms of CPU: call it off the event loop.
    """

    def __init__(self, cache_bytes: int = CACHE_BYTES) -> None:
        self._admitted: BoundedCache[str] = BoundedCache(cache_bytes)

    def admit(
        self, schema: dict[str, Any], at: str, *, strict: bool, bounds: Bounds | None = None, partition: str = ""
    ) -> str:
        """The text of a schema for the grammar: everything that `schema` asserts, bounded where it was open.

        at       where it stands in the request, such as "tools[3].function.parameters"
        strict   whether a `format` outside the engine's list is an assertion
        raises   SchemaError (400) with `param` at the keyword that cannot be enforced
        """
        bounds = bounds or Bounds()
        # Not sorted: the order of properties is the order of generation.
        key = blake2b(msgspec.json.encode((schema, strict)), digest_size=32).digest(), bounds
        known = self._admitted.get(partition, key)
        if known is None:
            known = _admit(schema, at, bounds, strict=strict)
            self._admitted.put(partition, key, known, len(known) + 256)
        return known


def json_object(bounds: Bounds) -> str:
    """The schema text of an object of any shape."""
    return _text(any_object(bounds))


def _admit(schema: dict[str, Any], at: str, bounds: Bounds, *, strict: bool) -> str:
    measure(schema, at)
    check_references(schema, at)
    cleaned = clean(schema, at, strict=strict)
    narrowed = narrow(cleaned, bounds)
    if refusal(narrowed) is None:
        return _text(narrowed)
    # A bound may contradict what the schema asks for elsewhere; then the schema stands as it is.
    reason = refusal(cleaned)
    if reason is not None:
        raise blame(cleaned, reason, at, refusal)
    return _text(cleaned)


def refusal(schema: dict[str, Any]) -> str | None:
    """Why llguidance will not enforce `schema`; None when it will."""
    if not schema:
        return None
    grammar = LLMatcher.grammar_from_json_schema(_text(schema))
    failed, messages = LLMatcher.validate_grammar_with_warnings(grammar, limits=_LIMITS)
    return messages[0] if failed else None


def _text(schema: dict[str, Any]) -> str:
    return json.dumps({**schema, "x-guidance": JSON_LAYOUT})
