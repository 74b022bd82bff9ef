"""Values of keywords: whatever a client sends where a schema belongs is admitted, or refused by its keyword."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.schemas import SchemaGate
from gateway.schemas.limits import SchemaError
from gateway.schemas.shape import check_shape


@pytest.mark.parametrize(
    ("schema", "keyword"),
    [
        ({"type": {"type": "object"}}, "type"),
        ({"type": ["string", {}]}, "type"),
        ({"type": "string", "format": ["date"]}, "format"),
        ({"$ref": None}, "$ref"),
        ({"pattern": 5}, "pattern"),
        ({"required": "a"}, "required"),
        ({"required": [5]}, "required"),
        ({"enum": "a"}, "enum"),
        ({"maximum": True}, "maximum"),
        ({"minItems": "3"}, "minItems"),
        ({"dependentRequired": {"a": "b"}}, "dependentRequired"),
    ],
)
def test_a_value_of_another_type_is_named(schema: dict[str, Any], keyword: str) -> None:
    with pytest.raises(SchemaError) as caught:
        check_shape(schema, "at", ("properties", "a"))
    assert (caught.value.status, caught.value.param) == (400, f"at.properties.a.{keyword}")


_NAMES = """
    type properties items enum const pattern format minimum exclusiveMaximum multipleOf maxLength minItems required
    additionalProperties patternProperties anyOf allOf not $ref $defs if then propertyNames uniqueItems prefixItems
    dependentRequired maxProperties title nullable x-guidance
"""
_KEYWORDS = st.sampled_from(_NAMES.split())
_TYPES = st.sampled_from(["string", "integer", "number", "object", "array", "null", "boolean"])
_SCALARS = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
_WORDS = _TYPES | st.sampled_from(["#", "#/$defs/a", "^a+$", "date", ""])
_VALUES = st.recursive(
    _SCALARS | _WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYWORDS | st.just("a"), inner, max_size=3),
    max_leaves=8,
)
_SCHEMAS = st.dictionaries(_KEYWORDS, _VALUES, max_size=4) | st.builds(
    lambda kind, rest: {"type": kind, **rest}, _TYPES, st.dictionaries(_KEYWORDS, _VALUES, max_size=3)
)


@settings(max_examples=150, deadline=None)
@given(_SCHEMAS, st.booleans())
def test_whatever_is_sent_as_a_schema_is_admitted_or_refused(schema: dict[str, Any], strict: bool) -> None:
    with suppress(SchemaError):
        assert SchemaGate().admit(schema, "at", strict=strict)
