from typing import Any

import pytest

from gateway.schemas.bounds import Bounds
from gateway.schemas.narrowing import any_object, narrow

BOUNDS = Bounds(string=10, items=3, properties=2, key=4, depth=1)


@pytest.mark.parametrize(
    ("schema", "added"),
    [
        ({"type": "string"}, {"maxLength": 10}),
        ({"type": "string", "minLength": 20}, {"maxLength": 20}),
        ({"type": ["string", "null"]}, {"maxLength": 10}),
        ({"type": "string", "maxLength": 99}, {}),
        ({"type": "string", "pattern": "^a+$"}, {}),
        ({"type": "string", "format": "date"}, {}),
        ({"type": "string", "enum": ["a long value"]}, {}),
        ({"type": "string", "const": "a long value"}, {}),
        ({"type": "array", "items": {"type": "null"}}, {"maxItems": 3}),
        ({"type": "array", "items": {"type": "null"}, "minItems": 5}, {"maxItems": 5}),
        ({"type": "integer"}, {"maximum": 2**53 - 1, "minimum": 1 - 2**53}),
        ({"type": "integer", "minimum": 0}, {"maximum": 2**53 - 1}),
        ({"type": "integer", "minimum": 2**60}, {}),
        ({"type": "integer", "exclusiveMaximum": 9}, {"minimum": 1 - 2**53}),
        ({"type": "number"}, {"maximum": 1e15, "minimum": -1e15, "multipleOf": 1e-9}),
        ({"type": "number", "minimum": 0, "maximum": 1e-12}, {}),
        ({"type": "object", "properties": {}}, {"additionalProperties": False}),
        ({"type": "object", "properties": {}, "additionalProperties": True}, {}),
        ({"type": "object", "properties": {}, "required": ["b"]}, {}),
        ({"type": "boolean"}, {}),
    ],
)
def test_only_open_ends_are_bounded(schema: dict[str, Any], added: dict[str, Any]) -> None:
    assert narrow(schema, BOUNDS) == schema | added


def test_bounds_reach_every_part() -> None:
    inner, bounded = {"type": "string"}, {"type": "string", "maxLength": 10}
    schema = {
        "anyOf": [inner, {"$ref": "#/$defs/a"}],
        "$defs": {"a": {"type": "array", "prefixItems": [inner], "items": inner}},
    }
    assert narrow(schema, BOUNDS) == {
        "anyOf": [bounded, {"$ref": "#/$defs/a"}],
        "$defs": {"a": {"type": "array", "prefixItems": [bounded], "items": bounded, "maxItems": 3}},
    }


@pytest.mark.parametrize(
    "schema",
    [
        {"allOf": [{"type": "string"}, {"minLength": 50}]},
        {"properties": {"a": {"type": "string"}}, "anyOf": [{"required": ["a"]}]},
        {"properties": {"a": {"$ref": "#/$defs/s", "minLength": 50}}, "$defs": {"s": {"type": "string"}}},
    ],
)
def test_schemas_that_combine_assertions_stay_as_they_are(schema: dict[str, Any]) -> None:
    assert narrow(schema, BOUNDS) == schema


def test_free_keys_get_a_length_and_a_number() -> None:
    narrowed = narrow({"type": "object", "additionalProperties": {"type": "null"}}, BOUNDS)
    assert narrowed == {
        "type": "object",
        "patternProperties": {"^[^\\x00-\\x1f]{0,4}$": {"type": "null"}},
        "additionalProperties": False,
        "maxProperties": 2,
    }


def test_anything_has_a_depth() -> None:
    definitions = narrow({"properties": {"a": {}}}, BOUNDS)["$defs"]
    assert set(definitions) == {"saltway-any-0", "saltway-any-1"}
    assert "saltway-any-0" in any_object(BOUNDS)["$defs"]


def test_bounds_shrink_with_the_reply() -> None:
    assert Bounds().within(None) == Bounds()
    assert Bounds().within(10**6) == Bounds()
    short = Bounds().within(64)
    assert (short.string, short.items, short.properties, short.key) == (64, 2, 2, 16)
    assert Bounds().within(1).string == 16
