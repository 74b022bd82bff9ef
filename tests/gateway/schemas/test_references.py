from typing import Any

import pytest

from gateway.schemas.limits import SchemaError
from gateway.schemas.references import check_references


def refused(schema: dict[str, Any]) -> tuple[str, str | None]:
    with pytest.raises(SchemaError) as caught:
        check_references(schema, "p")
    return str(caught.value), caught.value.param


def doubling(levels: int) -> dict[str, Any]:
    """Each level refers to the next one twice."""
    definitions: dict[str, Any] = {f"a{levels}": {"type": "string"}}
    for level in range(levels):
        target = {"$ref": f"#/$defs/a{level + 1}"}
        definitions[f"a{level}"] = {"type": "object", "properties": {"l": target, "r": target}}
    return {"$ref": "#/$defs/a0", "$defs": definitions}


@pytest.mark.parametrize(
    ("reference", "param"),
    [
        ("http://127.0.0.1:9/x", "p.properties.x.$ref"),
        ("other.json#/a", "p.properties.x.$ref"),
        ("#anchor", "p.properties.x.$ref"),
        ("#/$defs/none", "p.properties.x.$ref"),
        (5, "p.properties.x.$ref"),
    ],
)
def test_only_references_inside_the_schema_are_followed(reference: Any, param: str) -> None:
    assert refused({"properties": {"x": {"$ref": reference}}})[1] == param


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
        {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
        {"anyOf": [{"$ref": "#"}, {"allOf": [{"type": "object"}, {"$ref": "#"}]}]},
    ],
    ids=["self", "cycle", "requires itself", "no way out"],
)
def test_a_schema_without_finite_instances_is_refused(schema: dict[str, Any]) -> None:
    assert refused(schema) == ("The schema requires itself without end.", "p.$ref")


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"child": {"$ref": "#"}}},
        {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/n"}], "$defs": {"n": {"type": "array", "items": {"$ref": "#"}}}},
        {"type": ["object", "null"], "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
        {"$ref": "#/components/S", "components": {"S": {"properties": {"t": {"$ref": "#/components/T"}}}, "T": {}}},
        {"properties": {"a/b~%": {"type": "string"}, "c": {"$ref": "#/properties/a~1b~0%25"}}},
        doubling(10),
    ],
)
def test_recursion_with_an_end_is_fine(schema: dict[str, Any]) -> None:
    check_references(schema, "p")


def test_expansion_has_a_budget() -> None:
    assert "parts" in refused(doubling(25))[0]


def test_chains_and_targets_have_bounds() -> None:
    chain: dict[str, Any] = {f"a{number}": {"$ref": f"#/$defs/a{number + 1}"} for number in range(100)}
    assert "chained" in refused({"$ref": "#/$defs/a0", "$defs": {**chain, "a100": {}}})[0]
    many: dict[str, Any] = {f"a{number}": {} for number in range(300)}
    uses = {name: {"$ref": f"#/$defs/{name}"} for name in many}
    assert "definitions" in refused({"properties": uses, "$defs": many})[0]
