"""Bounds where a schema has none. Whatever fits the narrowed schema fits the one that was sent."""

from typing import Any

from gateway.schemas.bounds import Bounds
from gateway.schemas.tree import DEFINITIONS, LISTS, MAPS, SINGLES

LARGEST_INTEGER = 2**53 - 1
"""The largest that JSON numbers carry exactly everywhere (RFC 8259, section 6)."""
LARGEST_NUMBER = 1e15
FINEST_NUMBER = 1e-9
"""Nine decimals; llguidance counts digits of `multipleOf` and refuses much finer ones."""
COARSEST_LIMIT = 1e-3
"""A schema whose own limits are finer than this wants small numbers, and gets all of them."""

_LOWER = ("minimum", "exclusiveMinimum")
_UPPER = ("maximum", "exclusiveMaximum")
_COMBINING = ("allOf", "anyOf", "oneOf", "$ref")
_CLOSED_BY = ("enum", "const", *_COMBINING)
_ANY = "saltway-any-"


def narrow(schema: dict[str, Any], bounds: Bounds) -> dict[str, Any]:
    """A cleaned schema with `bounds` put into its open strings, lists, objects and numbers.

    A schema that combines assertions (`allOf`, or `anyOf` beside `properties`) is returned as it is: a bound in one
    half could contradict the other.
    """
    if _combines(schema):
        return schema
    narrowed = _narrow(schema, bounds)
    assert isinstance(narrowed, dict)
    if _ANY in repr(narrowed):
        narrowed["$defs"] = {**narrowed.get("$defs", {}), **_any_definitions(bounds)}
    return narrowed


def any_object(bounds: Bounds) -> dict[str, Any]:
    """What `response_format: json_object` means: an object of any shape, within bounds."""
    return narrow({"type": "object"}, bounds)


def _combines(node: Any) -> bool:
    """Whether some instance has to satisfy two sets of assertions at one place."""
    if isinstance(node, list):
        return any(_combines(inner) for inner in node)
    if not isinstance(node, dict):
        return False
    asserting = [keyword for keyword in node if keyword not in DEFINITIONS]
    if any(keyword in node for keyword in _COMBINING) and len(asserting) > 1:
        return True
    if isinstance(node.get("allOf"), list) and len(node["allOf"]) > 1:
        return True
    return any(_combines(_schemas(keyword, value)) for keyword, value in node.items())


def _schemas(keyword: str, value: Any) -> Any:
    if keyword in MAPS and isinstance(value, dict):
        return list(value.values())
    return value if keyword in LISTS or keyword in SINGLES else None


def _narrow(node: Any, bounds: Bounds) -> Any:
    if not isinstance(node, dict):
        return node
    narrowed = {keyword: _narrow_value(keyword, value, bounds) for keyword, value in node.items()}
    if any(keyword in node for keyword in _CLOSED_BY):
        return narrowed
    if not any(keyword not in DEFINITIONS for keyword in node):
        return {**narrowed, "$ref": f"#/$defs/{_ANY}{bounds.depth}"}
    kinds = node.get("type")
    for kind in kinds if isinstance(kinds, list) else [kinds]:
        if kind in _NARROW:
            _NARROW[kind](narrowed, bounds)
    return narrowed


def _narrow_value(keyword: str, value: Any, bounds: Bounds) -> Any:
    if keyword in MAPS and isinstance(value, dict):
        return {name: _narrow(inner, bounds) for name, inner in value.items()}
    if isinstance(value, list) and (keyword in LISTS or keyword == "items"):
        return [_narrow(inner, bounds) for inner in value]
    return _narrow(value, bounds) if keyword in SINGLES else value


def _string(node: dict[str, Any], bounds: Bounds) -> None:
    if not any(keyword in node for keyword in ("maxLength", "pattern", "format")):
        node["maxLength"] = max(bounds.string, _count(node, "minLength"))


def _array(node: dict[str, Any], bounds: Bounds) -> None:
    node.setdefault("maxItems", max(bounds.items, _count(node, "minItems"), _length(node, "prefixItems")))
    if node.get("items", True) is True:
        node["items"] = {"$ref": f"#/$defs/{_ANY}{bounds.depth - 1}"}


def _object(node: dict[str, Any], bounds: Bounds) -> None:
    """Declared properties close an object that says nothing else; free keys get a length and a number."""
    if "patternProperties" in node:
        return
    if isinstance(node.get("properties"), dict):
        required = node.get("required", [])
        if (
            "additionalProperties" not in node
            and isinstance(required, list)
            and set(required) <= set(node["properties"])
        ):
            node["additionalProperties"] = False
        return
    value = node.get("additionalProperties", True)
    if value is False or node.get("required"):
        return
    free = {"$ref": f"#/$defs/{_ANY}{bounds.depth - 1}"} if value is True else value
    node["patternProperties"] = {f"^[^\\x00-\\x1f]{{0,{bounds.key}}}$": free}
    node["additionalProperties"] = False
    node.setdefault("maxProperties", max(bounds.properties, _count(node, "minProperties")))


def _integer(node: dict[str, Any], _bounds: Bounds) -> None:
    _range(node, LARGEST_INTEGER)


def _number(node: dict[str, Any], _bounds: Bounds) -> None:
    kinds = node["type"]
    fine = any(0 < abs(node[limit]) < COARSEST_LIMIT for limit in (*_LOWER, *_UPPER) if _is_number(node.get(limit)))
    if not fine and (kinds == "number" or "integer" not in kinds):
        node.setdefault("multipleOf", FINEST_NUMBER)
    _range(node, LARGEST_NUMBER)


def _range(node: dict[str, Any], largest: float) -> None:
    """A missing end, unless the end that is there lies beyond it."""
    if any(_is_number(node.get(end)) and abs(node[end]) >= largest for end in (*_LOWER, *_UPPER)):
        return
    for (inclusive, exclusive), limit in ((_LOWER, -largest), (_UPPER, largest)):
        if exclusive not in node:
            node.setdefault(inclusive, limit)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_NARROW = {"string": _string, "array": _array, "object": _object, "integer": _integer, "number": _number}


def _count(node: dict[str, Any], keyword: str) -> int:
    value = node.get(keyword, 0)
    return value if isinstance(value, int) else 0


def _length(node: dict[str, Any], keyword: str) -> int:
    value = node.get(keyword, [])
    return len(value) if isinstance(value, list) else 0


def _any_definitions(bounds: Bounds) -> dict[str, Any]:
    """A value of any shape, `depth` levels deep; level 0 has no lists or objects."""
    return {f"{_ANY}{level}": _any(level, bounds) for level in range(bounds.depth + 1)}


def _any(level: int, bounds: Bounds) -> dict[str, Any]:
    scalars = ["string", "integer", "boolean", "null"]
    node: dict[str, Any] = {"type": scalars if level == 0 else ["object", "array", *scalars]}
    inner = {"$ref": f"#/$defs/{_ANY}{level - 1}"}
    if level:
        node["items"] = inner
        node["additionalProperties"] = inner
    return {"anyOf": [_narrow(node, bounds), _narrow({"type": "number"}, bounds)]}
