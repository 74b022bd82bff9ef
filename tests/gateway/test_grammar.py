import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.chat.messages import FunctionCall, Message, ToolCall
from gateway.chat.request import ChatRequest, parse_chat
from gateway.errors import ApiError
from gateway.grammar import constraint_for
from gateway.render import Renderer
from gateway.schemas import Bounds, SchemaGate, check_output
from gateway.tools.hermes import CallArguments, CallStart, Event, HermesParser, Text
from tests.gateway.byte_matcher import accepts, admits_start, walk
from tests.gateway.small_bpe import renderer_model

F = {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]}
TOOLS = [
    {"type": "function", "function": {"name": "f", "parameters": F}},
    {"type": "function", "function": {"name": "g"}},
]
CALL_F = '<tool_call>\n{"name": "f", "arguments": {"x": "1"}}\n</tool_call>'
CALL_G = '<tool_call>\n{"name": "g", "arguments": {}}\n</tool_call>'
ANSWER = {"type": "json_schema", "json_schema": {"name": "a", "strict": True, "schema": F}}
NAMED_G = {"type": "function", "function": {"name": "g"}}


def request(**fields: Any) -> ChatRequest:
    return parse_chat(json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}], **fields}).encode())


def grammar(*, bounds: Bounds | None = None, **fields: Any) -> str:
    constraint = constraint_for(request(**fields), SchemaGate(), bounds=bounds)
    assert constraint is not None
    return constraint


@pytest.mark.parametrize(
    ("fields", "accepted", "refused"),
    [
        (
            {},
            ["", "Hi there", "a < b <tool_ca", CALL_F, CALL_G, "Let me see.\n" + CALL_F, CALL_F + "\n" + CALL_G],
            [
                "see <tool_call>",
                CALL_F + " done",
                '<tool_call>\n{"name": "h", "arguments": {}}\n</tool_call>',
                '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>',
                '<tool_call>\n{"name":"g","arguments":{}}\n</tool_call>',
            ],
        ),
        ({"tool_choice": "required"}, [CALL_F, CALL_F + "\n" + CALL_G], ["", "Hi", "Let me see.\n" + CALL_F]),
        ({"tool_choice": NAMED_G}, [CALL_G], [CALL_F, CALL_G + "\n" + CALL_G, "Hi"]),
        ({"parallel_tool_calls": False}, ["Hi", CALL_F, "See.\n" + CALL_G], [CALL_F + "\n" + CALL_G]),
        ({"parallel_tool_calls": False, "tool_choice": "required"}, [CALL_F], [CALL_F + "\n" + CALL_G, "Hi"]),
        (
            {"response_format": ANSWER},
            ['{"x": "1"}', CALL_F + "\n" + CALL_G],
            ["Hi", "{}", '{"x": 1}', "Hi\n" + CALL_F],
        ),
        ({"response_format": {"type": "json_object"}}, ['{"any": [1, {"b": null}]}', CALL_G], ["Hi", "[]"]),
        ({"response_format": ANSWER, "tool_choice": "required"}, [CALL_F], ['{"x": "1"}']),
        ({"response_format": ANSWER, "tool_choice": "none"}, ['{"x": "1"}'], [CALL_F, "Hi"]),
        (
            {
                "tool_choice": {
                    "type": "allowed_tools",
                    "allowed_tools": {"mode": "required", "tools": [NAMED_G]},
                }
            },
            [CALL_G],
            [CALL_F, "Hi"],
        ),
    ],
)
def test_the_grammar_is_the_tool_choice(fields: dict[str, Any], accepted: list[str], refused: list[str]) -> None:
    constraint = grammar(tools=TOOLS, **fields)
    assert [text for text in accepted if not accepts(constraint, text)] == []
    assert [text for text in refused if accepts(constraint, text)] == []


@pytest.mark.parametrize("fields", [{}, {"tools": TOOLS, "tool_choice": "none"}, {"response_format": {"type": "text"}}])
def test_text_is_not_constrained(fields: dict[str, Any]) -> None:
    assert constraint_for(request(**fields), SchemaGate()) is None


def test_an_opener_commits_to_a_call() -> None:
    constraint = grammar(tools=TOOLS)
    assert admits_start(constraint, "text\n<tool_call>\n{")
    assert not admits_start(constraint, "text\n<tool_call> or not")
    assert not admits_start(constraint, "text <tool_call>")


def test_the_number_of_calls_is_bounded() -> None:
    constraint = grammar(tools=TOOLS, bounds=Bounds(calls=3))
    assert accepts(constraint, "\n".join([CALL_G] * 3))
    assert not accepts(constraint, "\n".join([CALL_G] * 4))


def test_a_short_reply_gets_short_values() -> None:
    assert accepts(grammar(response_format=ANSWER), json.dumps({"x": "a" * 1000}))
    assert not accepts(grammar(response_format=ANSWER, max_tokens=100), json.dumps({"x": "a" * 101}))


@pytest.mark.parametrize("choice", ["none", "auto", "required", NAMED_G])
def test_an_unenforceable_tool_is_refused_whatever_the_choice(choice: Any) -> None:
    bad = {"type": "function", "function": {"name": "bad", "parameters": {"properties": {"a": {"not": {}}}}}}
    with pytest.raises(ApiError) as caught:
        constraint_for(request(tools=[*TOOLS, bad], tool_choice=choice), SchemaGate())
    assert (caught.value.status, caught.value.param) == (400, "tools[2].function.parameters.properties.a.not")


def test_an_unenforceable_answer_is_refused() -> None:
    schema = {"type": "object", "properties": {"x": {"uniqueItems": True}}}
    wanted = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
    with pytest.raises(ApiError) as caught:
        grammar(response_format=wanted)
    assert caught.value.param == "response_format.json_schema.schema.properties.x.uniqueItems"


def test_a_format_is_enforced_or_refused_for_strict_tools_only() -> None:
    def tool(strict: bool) -> dict[str, Any]:
        schema = {"type": "object", "properties": {"x": {"type": "string", "format": "iri"}}}
        return {"type": "function", "function": {"name": "f", "parameters": schema, "strict": strict}}

    assert accepts(grammar(tools=[tool(False)]), CALL_F)
    with pytest.raises(ApiError) as caught:
        grammar(tools=[tool(True)])
    assert caught.value.param == "tools[0].function.parameters.properties.x.format"


@pytest.mark.parametrize(
    ("parameters", "accepted"),
    [
        (None, ["{}"]),
        ({"type": "object", "properties": {}}, ["{}"]),
        ({}, ["{}", '{"a": 1}', '{"a": null}']),
        ({"properties": {"a": {"type": "null"}}}, ["{}", '{"a": null}']),
    ],
)
def test_arguments_are_always_an_object(parameters: Any, accepted: list[str]) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": parameters}}
    constraint = grammar(tools=[tool])
    for arguments in ["{}", '{"a": 1}', '{"a": null}', "5", '"x"', "[]"]:
        text = f'<tool_call>\n{{"name": "f", "arguments": {arguments}}}\n</tool_call>'
        assert accepts(constraint, text) is (arguments in accepted), arguments


def test_arguments_that_are_not_an_object_are_refused() -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "string"}}}
    with pytest.raises(ApiError) as caught:
        grammar(tools=[tool])
    assert caught.value.param == "tools[0].function.parameters.type"


def test_the_largest_request_has_a_grammar() -> None:
    tools = [{"type": "function", "function": {"name": f"f{number}", "parameters": F}} for number in range(128)]
    assert accepts(grammar(tools=tools), CALL_F.replace('"f"', '"f127"'))


REGEX = {"structured_outputs": {"regex": r"\d{3}/[a-c]+\n?é"}}
CHOICE = {"guided_choice": ["yes", 'no "thanks"', "🧂\n", "a\x7f"]}
LARK: dict[str, Any] = {"structured_outputs": {"grammar": 'start: "the answer " NUMBER\nNUMBER: /[0-9]{1,3}/'}}


@pytest.mark.parametrize(
    ("fields", "accepted", "refused"),
    [
        (REGEX, ["123/abc\né", "000/aé"], ["12/aé", "123aé", "", "123/aé!"]),
        (CHOICE, ["yes", 'no "thanks"', "🧂\n", "a\x7f"], ["", "no", "yes!", "🧂"]),
        (LARK, ["the answer 42"], ["42", "the answer ", "the answer 1234"]),
        ({"guided_json": F}, ['{"x": "1"}'], ["{}", "Hi"]),
        ({"structured_outputs": {"json": json.dumps(F)}}, ['{"x": "1"}'], ["{}", "Hi"]),
        ({"structured_outputs": {"json_object": True}}, ['{"x": 1}', "{}"], ["[]", "Hi"]),
        (LARK | {"tools": TOOLS, "tool_choice": "none"}, ["the answer 42"], [CALL_G]),
        (CHOICE | {"tools": TOOLS}, ["yes", CALL_G], ["Hi", "yes\n" + CALL_G]),
        (REGEX | {"tools": TOOLS}, ["123/aé", CALL_F], ["Hi"]),
    ],
)
def test_an_answer_has_the_shape_that_was_asked_for(
    fields: dict[str, Any], accepted: list[str], refused: list[str]
) -> None:
    constraint = grammar(**fields)
    assert [text for text in accepted if not accepts(constraint, text)] == []
    assert [text for text in refused if accepts(constraint, text)] == []


@pytest.mark.parametrize("regex", ["(", "(?=a)b", r"(a)\1", "[z-a]"])
def test_an_expression_that_cannot_be_enforced_is_refused(regex: str) -> None:
    with pytest.raises(ApiError) as caught:
        grammar(structured_outputs={"regex": regex})
    assert (caught.value.status, caught.value.code, caught.value.param) == (
        400,
        "invalid_grammar",
        "structured_outputs.regex",
    )


def test_a_grammar_stands_alone() -> None:
    with pytest.raises(ApiError) as caught:
        grammar(tools=TOOLS, **LARK)
    assert (caught.value.status, caught.value.param) == (400, "structured_outputs.grammar")


SMALL = Bounds(string=6, items=2, properties=2, key=3, depth=1, calls=3)
RICH = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer", "minimum": 1, "maximum": 14},
        "tags": {"type": "array", "items": {"enum": ["a/b", "é", 'q"']}},
        "free": {"type": "object"},
        "ratio": {"type": "number"},
    },
    "required": ["city"],
}


RENDERER = Renderer(renderer_model())


def as_message(events: list[Event]) -> Message:
    """The assistant message that a client would send back."""
    text = "".join(event.text for event in events if isinstance(event, Text))
    names = [event.name for event in events if isinstance(event, CallStart)]
    arguments = ["" for _ in names]
    for event in events:
        if isinstance(event, CallArguments):
            arguments[event.index] += event.piece
    calls = (ToolCall("call_1", FunctionCall(*call)) for call in zip(names, arguments, strict=True))
    return Message("assistant", text or None, tool_calls=tuple(calls))


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(["auto", "required"]))
def test_what_is_generated_renders_as_history_to_the_text_that_was_generated(seed: int, choice: str) -> None:
    tools = [{"type": "function", "function": {"name": "get_weather", "parameters": RICH}}, TOOLS[1]]
    constraint = grammar(tools=tools, tool_choice=choice, bounds=SMALL)
    opening = "" if choice == "required" else "Let me see.\n"
    text = opening + walk(grammar(tools=tools, tool_choice="required", bounds=SMALL), seed)
    assert accepts(constraint, text)
    parser = HermesParser()
    message = as_message([*parser.feed(text), *parser.finish()])
    assert message.tool_calls
    for call in message.tool_calls:
        assert check_output(RICH if call.function.name == "get_weather" else {}, call.function.arguments) is None
    rendered = RENDERER.render([Message("user", "hi"), message]).tokens
    printed = b"".join(map(RENDERER.token_bytes, rendered)).decode()
    assert f"<|im_start|>assistant\n{text}<|im_end|>\n" in printed
