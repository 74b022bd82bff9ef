from typing import Any

import pytest

from gateway.schemas.limits import MAX_DEPTH, MAX_ENUM, MAX_NODES, MAX_SCHEMA_BYTES, SchemaError, measure


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"properties": {"a": schema}}
    return schema


def test_the_size_is_in_bytes_of_compact_json() -> None:
    assert measure({"type": "object", "properties": {"é": {}}}, "p") == len(
        '{"type":"object","properties":{"é":{}}}'.encode()
    )


@pytest.mark.parametrize(
    "schema",
    [
        nested(MAX_DEPTH),
        nested(3000),
        {"properties": {f"p{number}": {} for number in range(MAX_NODES)}},
        {"enum": list(range(MAX_ENUM + 1))},
        {"anyOf": [{"enum": list(range(600))}, {"enum": list(range(600))}]},
        {"description": "x" * MAX_SCHEMA_BYTES},
    ],
    ids=["depth", "3000 deep", "nodes", "enum", "enums", "bytes"],
)
def test_a_schema_past_a_bound_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(SchemaError) as caught:
        measure(schema, "tools[3].function.parameters")
    assert (caught.value.status, caught.value.param) == (400, "tools[3].function.parameters")


def pattern(number: int) -> dict[str, Any]:
    return {"type": "string", "pattern": f"^(a|b)*a(a|b){{{number}}}$"}


def chained(length: int) -> dict[str, Any]:
    """Each definition adds its pattern to the next one's."""
    links = {f"d{n}": pattern(n) | {"$ref": f"#/$defs/d{n + 1}"} for n in range(length)}
    return {"$ref": "#/$defs/d0", "$defs": links | {f"d{length}": pattern(length)}}


def alternating(depth: int) -> dict[str, Any]:
    schema = pattern(0)
    for number in range(1, depth):
        schema = pattern(number) | {"anyOf": [schema]}
    return schema


@pytest.mark.parametrize(
    "schema", [{"allOf": [pattern(n) for n in range(20)]}, chained(20), alternating(20)], ids=["allOf", "$ref", "anyOf"]
)
def test_patterns_that_would_be_intersected_without_end_are_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(SchemaError) as caught:
        measure(schema, "p")
    assert caught.value.keyword == "pattern"


def test_many_patterns_side_by_side_and_many_combined_subschemas_without_them_pass() -> None:
    assert measure({"properties": {f"p{n}": pattern(n) for n in range(40)}}, "p")
    assert measure({"allOf": [{"required": [f"p{n}"]} for n in range(40)]}, "p")


def test_a_schema_at_the_bounds_passes() -> None:
    assert measure({"enum": list(range(MAX_ENUM))}, "p")
    assert measure(nested(MAX_DEPTH // 2 - 1), "p")
