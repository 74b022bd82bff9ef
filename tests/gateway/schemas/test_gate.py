import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.schemas import Bounds, SchemaGate, check_output
from gateway.schemas.gate import json_object
from gateway.schemas.limits import SchemaError
from tests.gateway.byte_matcher import accepts, walk

AT = "tools[3].function.parameters"
SMALL = Bounds(string=8, items=2, properties=2, key=3, depth=1)


def admit(schema: dict[str, Any], *, strict: bool = True, bounds: Bounds | None = None) -> str:
    return "start: %json " + SchemaGate().admit(schema, AT, strict=strict, bounds=bounds)


def prop(schema: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"when": schema}, "required": ["when"]}


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        (prop({"not": {"type": "string"}}), "properties.when.not"),
        (prop({"if": {}, "then": {"type": "string"}}), "properties.when.if"),
        (prop({"type": "array", "uniqueItems": True}), "properties.when.uniqueItems"),
        (prop({"type": "array", "contains": {"type": "null"}}), "properties.when.contains"),
        (prop({"type": "object", "dependentRequired": {"a": ["b"]}}), "properties.when.dependentRequired"),
        (prop({"type": "object", "unevaluatedProperties": False}), "properties.when.unevaluatedProperties"),
        (prop({"type": "string", "format": "regex"}), "properties.when.format"),
        (prop({"type": "string", "pattern": "^(?=a)b"}), "properties.when.pattern"),
        (prop({"type": "string", "pattern": "^(a)\\1$"}), "properties.when.pattern"),
        (prop({"type": "string", "pattern": "\\d{"}), "properties.when.pattern"),
        (prop({"type": "something"}), "properties.when.type"),
        (prop({"type": "string", "minLength": "a"}), "properties.when.minLength"),
        (prop({"oneOf": [prop({"type": "string"}), prop({"type": "string"})]}), "properties.when.oneOf"),
        (prop({"type": "array", "items": {"anyOf": [{"not": {}}, {}]}}), "properties.when.items.anyOf[0].not"),
        ({"properties": {"a": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"not": {}}}}, "$defs.n.not"),
        ({"type": "object", "required": ["x"], "additionalProperties": False}, "required"),
        ({"x-guidance": {"lenient": True}, "not": {}}, "not"),
    ],
)
def test_what_cannot_be_enforced_is_named_with_its_path(schema: dict[str, Any], path: str) -> None:
    with pytest.raises(SchemaError) as caught:
        admit(schema)
    assert (caught.value.status, caught.value.param) == (400, f"{AT}.{path}")
    assert caught.value.keyword == path.split(".")[-1]


def test_a_definition_that_is_not_used_is_not_to_blame() -> None:
    schema = {"properties": {"b": {"uniqueItems": True}}, "$defs": {"n": {"not": {}}}}
    with pytest.raises(SchemaError) as caught:
        admit(schema)
    assert caught.value.param == f"{AT}.properties.b.uniqueItems"
    assert admit({"type": "object", "properties": {}, "$defs": {"n": {"not": {}}}})


def test_a_bound_never_makes_a_schema_unsatisfiable() -> None:
    schema = prop({"allOf": [{"type": "string", "minLength": 20}]})
    assert accepts(admit(schema, bounds=SMALL), json.dumps({"when": "x" * 20}))


@pytest.mark.parametrize(
    ("text", "accepted"),
    [
        ('{"when": "a/é\\n"}', True),
        ('{"when":"a"}', False),
        ('{ "when": "a"}', False),
        ('{"when": "\\u00e9"}', False),
        ('{"when": "a\\/"}', False),
        ('{"when": "a", "more": 1}', False),
    ],
)
def test_there_is_one_spelling_for_each_value(text: str, accepted: bool) -> None:
    assert accepts(admit(prop({"type": "string"})), text) is accepted


def test_properties_are_generated_in_the_order_of_the_schema() -> None:
    integer = {"type": "integer"}
    grammar = admit({"type": "object", "properties": {"z": integer, "a": integer}, "required": ["a", "z"]})
    assert accepts(grammar, '{"z": 1, "a": 2}')
    assert not accepts(grammar, '{"a": 2, "z": 1}')


def test_loops_inside_a_value_end() -> None:
    grammar = admit(prop({"type": "number"}))
    assert accepts(grammar, '{"when": -12.125}')
    assert not accepts(grammar, '{"when": 0.3333333333}')
    assert not accepts(grammar, '{"when": ' + "1" * 20 + "}")
    assert not accepts(admit(prop({"type": "string"})), json.dumps({"when": "a" * 1025}))


def test_admitted_schemas_are_remembered_for_their_tenant() -> None:
    gate = SchemaGate()
    first = gate.admit(prop({}), AT, strict=True, partition="acme")
    assert gate.admit(prop({}), AT, strict=True, partition="acme") is first
    assert gate.admit(prop({}), AT, strict=True, partition="globex") is not first


def test_the_memory_does_not_mix_bounds_strictness_or_order() -> None:
    gate = SchemaGate()
    loose, strict = ({"type": "string", "format": "regex"}, {"type": "string", "format": "date"})
    assert gate.admit(loose, AT, strict=False)
    with pytest.raises(SchemaError):
        gate.admit(loose, AT, strict=True)
    assert gate.admit(strict, AT, strict=True) != gate.admit(prop(strict), AT, strict=True)
    assert gate.admit(prop({}), AT, strict=True) != gate.admit(prop({}), AT, strict=True, bounds=SMALL)
    ab: dict[str, Any] = {"properties": {"a": {}, "b": {}}}
    ba: dict[str, Any] = {"properties": {"b": {}, "a": {}}}
    assert gate.admit(ab, AT, strict=True) != gate.admit(ba, AT, strict=True)


_NAMES = st.sampled_from(["a", "b", "c d", "é"])
_LEAVES = st.sampled_from(
    [
        {"type": "string"},
        {"type": "string", "minLength": 2},
        {"type": "string", "format": "date"},
        {"type": "string", "pattern": "^[a-c]{1,4}$"},
        {"type": "integer"},
        {"type": "integer", "minimum": 3, "maximum": 40},
        {"type": "number", "minimum": 0},
        {"type": ["boolean", "null"]},
        {"enum": ["x/y", 5, None, {"k": [1, "é"]}]},
        {"const": "long constant value"},
        {"type": "object"},
        {"type": "object", "additionalProperties": {"type": "integer"}},
        {"type": "array"},
        {},
        {"description": "anything", "default": 3},
    ]
)


def _object(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [name for name in required if name in properties]}


_SCHEMAS = st.recursive(
    _LEAVES,
    lambda inner: (
        st.builds(_object, st.dictionaries(_NAMES, inner, max_size=3), st.lists(_NAMES, max_size=2))
        | st.builds(lambda item: {"type": "array", "items": item}, inner)
        | st.builds(lambda one: {"anyOf": [one, {"type": "null"}]}, inner)
        | st.builds(
            lambda one: {"$defs": {"n": one}, "type": "object", "properties": {"a": {"type": "boolean"}}}, inner
        )
    ),
    max_leaves=5,
)


@settings(max_examples=40, deadline=None)
@given(_SCHEMAS, st.integers(0, 2**32))
def test_whatever_is_generated_ends_and_satisfies_the_schema_as_sent(schema: dict[str, Any], seed: int) -> None:
    text = walk(admit(schema, bounds=SMALL), seed)
    assert check_output(schema, text) is None


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**32))
def test_any_object_is_an_object_and_ends(seed: int) -> None:
    assert isinstance(json.loads(walk("start: %json " + json_object(SMALL), seed)), dict)
