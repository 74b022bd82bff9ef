from typing import Any

import pytest

from gateway.schemas import check_output
from gateway.schemas.output import MAX_OUTPUT_CHARACTERS, Violation

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"id": {"type": "string", "pattern": "^[a-z]+$"}, "n": {"$ref": "#/$defs/n"}},
    "patternProperties": {"^x-": {"type": "null"}},
    "additionalProperties": False,
    "$defs": {"n": {"type": "integer", "maximum": 9}},
}


@pytest.mark.parametrize(
    ("text", "keyword"),
    [
        ('{"id": "abc", "n": 9, "x-a": null}', None),
        ('{"id": "abc1"}', "pattern"),
        ('{"n": 10}', "maximum"),
        ('{"x-a": 1}', "type"),
        ('{"more": 1}', "additionalProperties"),
        ('{"id": "abc"', "json"),
        ("[]", "type"),
        ("[" * 5000, "depth"),
        ('"' + "x" * MAX_OUTPUT_CHARACTERS + '"', "size"),
    ],
)
def test_output_is_judged_by_another_implementation(text: str, keyword: str | None) -> None:
    violation = check_output(SCHEMA, text)
    assert (violation.keyword if violation else None) == keyword


def test_the_place_is_named() -> None:
    assert check_output(SCHEMA, '{"n": 10}') == Violation("maximum", ("properties", "n", "maximum"))


def test_a_catastrophic_pattern_takes_no_time() -> None:
    schema = {"type": "string", "pattern": "^(a+)+$"}
    assert check_output(schema, '"' + "a" * 2000 + 'b"') == Violation("pattern", ("pattern",))
    assert check_output(schema, '"' + "a" * 2000 + '"') is None
