"""A schema without what asserts nothing, so that what is left must be enforced or refused."""

import re
from collections.abc import Callable
from typing import Any

from gateway.schemas.limits import SchemaError
from gateway.schemas.shape import check_shape
from gateway.schemas.tree import ANNOTATIONS, LISTS, MAPS, SINGLES, Path, dotted

ENFORCED_FORMATS = frozenset(
    ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri")
)
"""What llguidance 1.9 enforces; a test asks it."""
_OPENAPI_NUMBERS = (
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float",
    "double",
    "decimal",
)
_OPENAPI_TEXTS = ("byte", "binary", "password", "char", "commonmark", "html", "unknown")
ANNOTATION_FORMATS = frozenset((*_OPENAPI_NUMBERS, *_OPENAPI_TEXTS))
"""OpenAPI's own formats (its format registry): hints to a reader, not assertions of JSON Schema."""

_UNSPELLABLE = re.compile("[\x00-\x07\x0b\x0e-\x1f]")
_ANYTHING: tuple[Any, ...] = (True, {})
_VACUOUS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "uniqueItems": lambda node: node["uniqueItems"] is False,
    "propertyNames": lambda node: node["propertyNames"] in (*_ANYTHING, {"type": "string"}),
    "unevaluatedProperties": lambda node: node["unevaluatedProperties"] in _ANYTHING,
    "unevaluatedItems": lambda node: node["unevaluatedItems"] in _ANYTHING,
    "dependentRequired": lambda node: node["dependentRequired"] == {},
    "dependentSchemas": lambda node: node["dependentSchemas"] == {},
    "dependencies": lambda node: node["dependencies"] == {},
    "minContains": lambda node: "contains" not in node,
    "maxContains": lambda node: "contains" not in node,
    "then": lambda node: "if" not in node,
    "else": lambda node: "if" not in node,
    "if": lambda node: "then" not in node and "else" not in node,
}
"""Keywords with values that every instance satisfies, by JSON Schema 2020-12."""
_IDENTITY = frozenset(("$id", "id", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$vocabulary"))
_IGNORED = frozenset(
    ("x-guidance", "nullable", "discriminator", "contentEncoding", "contentMediaType", "contentSchema")
)
"""Not assertions. `x-guidance` least of all: it would let a client switch enforcement off."""


def clean(schema: dict[str, Any], at: str, *, strict: bool) -> dict[str, Any]:
    """`schema` without annotations and keywords that hold for every value.

    Assertions stay, enforceable or not. Under `strict` an unknown `format` is an assertion; otherwise it is what JSON
    Schema 2020-12 makes it, an annotation. Raises SchemaError for a value of the wrong type where a schema must be.
    """
    cleaned = _clean(schema, at, (), strict)
    assert isinstance(cleaned, dict)
    return cleaned


def _clean(node: Any, at: str, path: Path, strict: bool) -> Any:
    if isinstance(node, bool):
        return node
    if not isinstance(node, dict):
        raise SchemaError("A schema is an object or a boolean.", dotted(at, path))
    check_shape(node, at, path)
    return {
        keyword: _clean_value(keyword, value, at, (*path, keyword), strict)
        for keyword, value in node.items()
        if not _says_nothing(keyword, node, strict)
    }


def _clean_value(keyword: str, value: Any, at: str, path: Path, strict: bool) -> Any:
    if keyword in ("enum", "const") or keyword == "properties":
        _refuse_unspellable(list(value) if keyword == "properties" and isinstance(value, dict) else value, at, path)
    if keyword in MAPS:
        if not isinstance(value, dict):
            raise SchemaError("Must be an object of schemas.", dotted(at, path), keyword)
        return {name: _clean(inner, at, (*path, name), strict) for name, inner in value.items()}
    if keyword in LISTS or (keyword == "items" and isinstance(value, list)):
        if not isinstance(value, list):
            raise SchemaError("Must be a list of schemas.", dotted(at, path), keyword)
        return [_clean(inner, at, (*path, index), strict) for index, inner in enumerate(value)]
    if keyword in SINGLES:
        return _clean(value, at, path, strict)
    return value


def _refuse_unspellable(value: Any, at: str, path: Path) -> None:
    """A control character without a short escape: llguidance 1.9 drops it, and generates another text."""
    if isinstance(value, str) and _UNSPELLABLE.search(value):
        raise SchemaError("A text here has a control character that JSON has no letter for.", dotted(at, path))
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, list):
        for inner in value:
            _refuse_unspellable(inner, at, path)


def _says_nothing(keyword: str, node: dict[str, Any], strict: bool) -> bool:
    if keyword in ANNOTATIONS or keyword in _IDENTITY or keyword in _IGNORED:
        return True
    if keyword == "format":
        return _is_annotation(node, strict)
    return keyword in _VACUOUS and _VACUOUS[keyword](node)


def _is_annotation(node: dict[str, Any], strict: bool) -> bool:
    """A format speaks of strings only."""
    kinds = node.get("type", "string")
    if kinds != "string" and not (isinstance(kinds, list) and "string" in kinds):
        return True
    name = node["format"]
    return name in ANNOTATION_FORMATS or (not strict and name not in ENFORCED_FORMATS)
