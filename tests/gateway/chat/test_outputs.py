"""A second opinion on what was said under a schema."""

from typing import Any

import pytest

from gateway.chat.reading import Reading
from gateway.frames import DeltaFrame, FinishFrame
from tests.gateway.chat.played import frames, request, spelled

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}
FORMAT = {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA, "strict": True}}
TOOL = {"type": "function", "function": {"name": "f", "parameters": SCHEMA}}


def call(arguments: str) -> str:
    return f'<tool_call>\n{{"name": "f", "arguments": {arguments}}}\n</tool_call>'


def judged(text: str, *, reason: str = "stop", **fields: Any) -> list[str] | None:
    """The violations of a reply that came in pieces of three characters; None when there was nothing to judge."""
    asked = request(**fields)
    reading = Reading(asked, spelled)
    for frame in frames([text[at : at + 3] for at in range(0, len(text), 3)], n=asked.n, reason=reason):
        if isinstance(frame, DeltaFrame | FinishFrame):
            reading.read(frame)
    return reading.outputs.violations() if reading.outputs.any else None


def test_an_answer_that_its_schema_accepts_is_valid() -> None:
    assert judged('{"n": 3}', response_format=FORMAT) == []


@pytest.mark.parametrize(
    ("text", "keyword"), [('{"n": "3"}', "type"), ("{}", "required"), ('{"n": 3', "json"), ("[]", "type")]
)
def test_an_answer_that_breaks_its_schema_is_named_by_keyword(text: str, keyword: str) -> None:
    assert judged(text, response_format=FORMAT) == [keyword]


def test_each_choice_is_judged() -> None:
    assert judged("{}", response_format=FORMAT, n=2) == ["required", "required"]


def test_arguments_are_judged_by_the_schema_of_their_tool() -> None:
    assert judged(call('{"n": 3}'), tools=[TOOL]) == []
    assert judged(call('{"m": 3}'), tools=[TOOL]) == ["required"]


def test_beside_tools_a_reply_with_calls_is_not_judged_as_an_answer() -> None:
    assert judged(call('{"n": 3}'), tools=[TOOL], response_format=FORMAT) == []
    assert judged('{"n": "3"}', tools=[TOOL], response_format=FORMAT) == ["type"]


def test_an_object_of_any_shape_is_still_an_object() -> None:
    assert judged('{"a": []}', response_format={"type": "json_object"}) == []
    assert judged("3", response_format={"type": "json_object"}) == ["type"]


def test_what_a_limit_or_a_stop_string_cut_is_not_judged() -> None:
    assert judged('{"n": ', response_format=FORMAT, reason="length") is None
    assert judged('{"n": ', response_format=FORMAT, stop=["3"]) is None


def test_free_text_is_not_judged_nor_kept() -> None:
    assert judged("Hello.") is None
    assert judged("Hello.", tools=[TOOL]) is None


def test_what_is_too_long_to_judge_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.chat.outputs.MAX_OUTPUT_CHARACTERS", 10)
    assert judged('{"n": "33333333"}', response_format=FORMAT) == []
