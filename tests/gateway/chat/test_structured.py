"""vLLM's fields for the shape of an answer: bounds, and one at a time."""

import json
from typing import Any

import pytest

from gateway.chat.messages import ResponseFormat
from gateway.chat.request import parse_chat
from gateway.errors import BadRequestError

SCHEMA = {"type": "object"}
JSON_OBJECT = {"type": "json_object"}


def shape(**fields: Any) -> ResponseFormat:
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], **fields}
    return parse_chat(json.dumps(body).encode()).response_format


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"guided_regex": "a+"}, ResponseFormat("regex", text="a+", at="guided_regex")),
        ({"guided_grammar": "start: A"}, ResponseFormat("grammar", text="start: A", at="guided_grammar")),
        ({"guided_choice": ["a", "b"]}, ResponseFormat("choice", choices=("a", "b"), at="guided_choice")),
        ({"guided_json": SCHEMA}, ResponseFormat("json_schema", json_schema=SCHEMA, at="guided_json")),
        (
            {"structured_outputs": {"choice": ["a"], "regex": None, "json_object": False}},
            ResponseFormat("choice", choices=("a",), at="structured_outputs.choice"),
        ),
        ({"structured_outputs": None, "guided_json": None}, ResponseFormat()),
        (
            {"guided_regex": "a", "response_format": {"type": "text"}},
            ResponseFormat("regex", text="a", at="guided_regex"),
        ),
    ],
)
def test_each_field_says_what_the_answer_looks_like(fields: dict[str, Any], expected: ResponseFormat) -> None:
    assert shape(**fields) == expected


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"guided_regex": ""}, "guided_regex"),
        ({"guided_regex": "a" * 4097}, "guided_regex"),
        ({"structured_outputs": {"grammar": "a" * 65_537}}, "structured_outputs.grammar"),
        ({"guided_choice": []}, "guided_choice"),
        ({"guided_choice": ["a"] * 501}, "guided_choice"),
        ({"guided_choice": ["a", ""]}, "guided_choice[1]"),
        ({"guided_choice": "a"}, "guided_choice"),
        ({"guided_json": "{"}, "guided_json"),
        ({"guided_json": "[]"}, "guided_json"),
        ({"guided_json": {"enum": list(range(2000))}}, "guided_json"),
        ({"structured_outputs": {}}, "structured_outputs"),
        ({"structured_outputs": {"regex": "a", "choice": ["a"]}}, "structured_outputs.choice"),
        ({"guided_regex": "a", "response_format": JSON_OBJECT}, "guided_regex"),
        ({"guided_regex": "a", "structured_outputs": {"json": SCHEMA}}, "guided_regex"),
    ],
)
def test_what_is_wrong_is_named(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        shape(**fields)
    assert caught.value.param == param
