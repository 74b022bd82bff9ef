from typing import Any

import pytest
from llguidance import LLMatcher

from gateway.schemas.cleaning import ANNOTATION_FORMATS, ENFORCED_FORMATS, clean
from gateway.schemas.limits import SchemaError


@pytest.mark.parametrize(
    "name", [*sorted(ENFORCED_FORMATS), "regex", "iri", "json-pointer", "uri-reference", "idn-email"]
)
def test_the_list_of_enforced_formats_is_the_engines(name: str) -> None:
    grammar = LLMatcher.grammar_from_json_schema({"type": "string", "format": name})
    failed, _ = LLMatcher.validate_grammar_with_warnings(grammar)
    assert failed == (name not in ENFORCED_FORMATS)


@pytest.mark.parametrize(
    "nothing",
    [
        {"description": "d", "title": "t", "default": 1, "examples": [1], "$comment": "c", "deprecated": True},
        {"$schema": "http://json-schema.org/draft-07/schema#", "$id": "http://x/y", "$anchor": "a"},
        {"uniqueItems": False},
        {"propertyNames": {"type": "string"}},
        {"unevaluatedProperties": True, "unevaluatedItems": {}},
        {"dependentRequired": {}, "minContains": 2},
        {"then": {"type": "string"}, "else": {}},
        {"if": {"type": "string"}},
        {"x-guidance": {"lenient": True}, "nullable": True},
    ],
)
def test_what_holds_for_every_value_is_dropped(nothing: dict[str, Any]) -> None:
    schema = {"type": "object", "properties": {"default": {"type": "array", **nothing}}}
    assert clean(schema, "p", strict=True) == {"type": "object", "properties": {"default": {"type": "array"}}}


@pytest.mark.parametrize(
    "assertion",
    [{"uniqueItems": True}, {"not": {}}, {"if": {}, "then": {}}, {"contains": {}}, {"propertyNames": {"maxLength": 3}}],
)
def test_assertions_stay(assertion: dict[str, Any]) -> None:
    assert clean({"items": assertion}, "p", strict=False) == {"items": assertion}


def test_a_format_is_an_assertion_only_where_it_can_be_one() -> None:
    for name in ANNOTATION_FORMATS:
        assert clean({"type": "string", "format": name}, "p", strict=True) == {"type": "string"}
    assert clean({"type": "integer", "format": "regex"}, "p", strict=True) == {"type": "integer"}
    assert clean({"type": "string", "format": "regex"}, "p", strict=False) == {"type": "string"}
    for kept in ({"type": "string", "format": "regex"}, {"type": ["null", "string"], "format": "date"}):
        assert clean(kept, "p", strict=True) == kept


@pytest.mark.parametrize(
    ("schema", "param"),
    [
        ({"properties": {"a": 5}}, "p.properties.a"),
        ({"properties": []}, "p.properties"),
        ({"anyOf": {}}, "p.anyOf"),
        ({"anyOf": [{}, "x"]}, "p.anyOf[1]"),
        ({"items": 5}, "p.items"),
        ({"properties": {"a": {"exclusiveMinimum": True}}}, "p.properties.a.exclusiveMinimum"),
    ],
)
def test_what_is_no_schema_is_named(schema: dict[str, Any], param: str) -> None:
    with pytest.raises(SchemaError) as caught:
        clean(schema, "p", strict=True)
    assert caught.value.param == param


@pytest.mark.parametrize(
    ("schema", "param"),
    [
        ({"enum": ["a", "hello\x00there"]}, "at.enum"),
        ({"properties": {"x": {"const": {"deep": ["\x1b[0m"]}}}}, "at.properties.x.const"),
        ({"properties": {"bell\x07": {}}}, "at.properties"),
    ],
)
def test_a_control_character_that_cannot_be_spelled_is_refused(schema: dict[str, Any], param: str) -> None:
    with pytest.raises(SchemaError) as caught:
        clean(schema, "at", strict=False)
    assert caught.value.param == param


def test_control_characters_with_an_escape_of_their_own_are_fine() -> None:
    assert clean({"enum": ["\b\f\n\r\t"]}, "at", strict=False)
