"""How large a schema may be, and the one walk that every other walk relies on: afterwards recursion is safe."""

from typing import Any

import msgspec

from gateway.errors import BadRequestError

MAX_SCHEMA_BYTES = 64 * 1024
MAX_TOTAL_BYTES = 1024 * 1024
"""All schemas of one request together."""
MAX_NODES = 4000
"""JSON values in one schema, of any kind."""
MAX_DEPTH = 64
"""Nested objects and lists in one schema, as JSON."""
MAX_ENUM = 1000
"""Enumerated values in one schema; TensorRT-LLM's figure."""
MAX_COMBINED_PATTERNS = 8
"""Patterns in a schema that combines as many subschemas: the engine intersects them, at four times the time for every
two more, and 20 of them do not end within a minute."""


class SchemaError(BadRequestError):
    """A schema that will not be enforced. `param` ends in the keyword when one is to blame."""

    def __init__(self, message: str, param: str, keyword: str | None = None) -> None:
        super().__init__(message, param=param, code="invalid_schema")
        self.keyword = keyword


def measure(schema: dict[str, Any], at: str) -> int:
    """The size of `schema` in bytes of compact JSON. Raises SchemaError past any bound; never recurses."""
    nodes = enumerated = patterns = combined = 0
    stack: list[tuple[Any, int]] = [(schema, 1)]
    while stack:
        value, depth = stack.pop()
        nodes += 1
        if depth > MAX_DEPTH:
            raise SchemaError(f"The schema is nested more than {MAX_DEPTH} deep.", at)
        if isinstance(value, dict):
            enumerated += _enumerated(value)
            patterns += "pattern" in value
            combined += _combined(value)
            stack.extend((inner, depth + 1) for inner in value.values())
        elif isinstance(value, list):
            stack.extend((inner, depth + 1) for inner in value)
        if nodes + len(stack) > MAX_NODES:
            raise SchemaError(f"The schema has more than {MAX_NODES} values.", at)
    if enumerated > MAX_ENUM:
        raise SchemaError(f"The schema enumerates more than {MAX_ENUM} values.", at, "enum")
    if min(patterns, combined) > MAX_COMBINED_PATTERNS:
        message = f"The schema combines subschemas and has more than {MAX_COMBINED_PATTERNS} patterns."
        raise SchemaError(message, at, "pattern")
    size = len(msgspec.json.encode(schema))
    if size > MAX_SCHEMA_BYTES:
        raise SchemaError(f"The schema is larger than {MAX_SCHEMA_BYTES} bytes.", at)
    return size


def _enumerated(value: dict[str, Any]) -> int:
    values = value.get("enum")
    return len(values) if isinstance(values, list) else 0


def _combined(value: dict[str, Any]) -> int:
    """How many subschemas are combined with one another or with their siblings here."""
    both = value.get("allOf")
    beside = sum(keyword in value for keyword in ("$ref", "anyOf", "oneOf")) if len(value) > 1 else 0
    return beside + (len(both) if isinstance(both, list) else 0)
