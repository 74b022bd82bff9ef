import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.chat.messages import FunctionCall, Message, ResponseFormat, StreamOptions, TextPart, ToolCall, ToolChoice
from gateway.chat.request import ChatRequest, parse_chat
from gateway.errors import BadRequestError

U = [{"role": "user", "content": "hi"}]


def tool(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, **fields}}


def body(**fields: Any) -> bytes:
    return json.dumps({"model": "m", "messages": U, **fields}).encode()


def refused(data: bytes) -> BadRequestError:
    with pytest.raises(BadRequestError) as caught:
        parse_chat(data)
    assert caught.value.status == 400
    return caught.value


def turn(**fields: Any) -> bytes:
    """A body whose third message has these fields."""
    return body(messages=[*U, *U, {"role": "user", "content": "x", **fields}])


def test_the_smallest_request_gets_every_default() -> None:
    assert parse_chat(body()) == ChatRequest(model="m", messages=(Message("user", "hi"),))


def test_every_field_is_read() -> None:
    request = parse_chat(
        body(
            tools=[tool("f", description="d", parameters={"type": "object"}, strict=True)],
            tool_choice="required",
            parallel_tool_calls=False,
            response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": {"x": 1}, "strict": True}},
            stream=True,
            stream_options={"include_usage": True},
            n=3,
            stop=["a", "b"],
            seed=-(2**63),
            temperature=0,
            top_p=0.5,
            max_tokens=5,
            max_completion_tokens=7,
            logprobs=True,
            top_logprobs=20,
            presence_penalty=-2,
            frequency_penalty=2,
            logit_bias={"50": -100},
            top_k=20,
            min_p=0.1,
            repetition_penalty=1.1,
            min_tokens=2,
            ignore_eos=True,
            stop_token_ids=[7, 9],
            user="u",
            saltway={"namespace": "run-7"},
            metadata={"a": "b"},
            some_future_field=[1, 2],
        )
    )
    assert request.callable_tools == request.tools
    assert request.tools[0].strict
    assert request.tool_choice == ToolChoice("required")
    assert not request.parallel_tool_calls
    assert request.response_format == ResponseFormat(
        "json_schema", {"x": 1}, True, at="response_format.json_schema.schema"
    )
    assert (request.stream, request.stream_options) == (True, StreamOptions(True))
    assert (request.n, request.stop, request.seed, request.temperature, request.top_p) == (
        3,
        ("a", "b"),
        -(2**63),
        0,
        0.5,
    )
    assert (request.max_tokens, request.logprobs, request.top_logprobs) == (7, True, 20)
    assert (request.presence_penalty, request.frequency_penalty, request.logit_bias) == (-2, 2, {"50": -100})
    assert (request.top_k, request.min_p, request.repetition_penalty) == (20, 0.1, 1.1)
    assert (request.min_tokens, request.ignore_eos, request.stop_token_ids) == (2, True, (7, 9))
    assert parse_chat(body(top_k=-1)).top_k == 0
    assert (request.user, request.cache.namespace) == ("u", "run-7")


def test_null_is_absent() -> None:
    fields = [name for name in ChatRequest.__struct_fields__ if name not in ("model", "messages", "cache")]
    nulls = dict.fromkeys([*fields, "max_completion_tokens", "functions", "modalities", "saltway", "unknown"])
    assert parse_chat(body(**nulls)) == parse_chat(body())
    empty = {"name": None, "tool_calls": None, "tool_call_id": None}
    assert parse_chat(body(messages=[{**U[0], **empty}])) == parse_chat(body())


def test_a_salt_is_never_taken() -> None:
    salted = body(cache_salt="acme", extra_key="x", saltway={"salt": "acme", "cache_salt": "acme"})
    assert parse_chat(salted) == parse_chat(body())


def test_all_shapes_of_history_are_accepted() -> None:
    said = [
        {"role": "developer", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "user", "content": [], "name": "kim"},
        {"role": "assistant", "content": None, "tool_calls": [tool("f", arguments='{"x": ') | {"id": "call_1"}]},
        {"role": "tool", "content": None, "tool_call_id": "call_1"},
        {"role": "assistant", "refusal": "No.", "tool_calls": []},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
    ]
    assert parse_chat(body(messages=said)).messages == (
        Message("developer", (TextPart("a"), TextPart("b"))),
        Message("user", (), "kim"),
        Message("assistant", None, tool_calls=(ToolCall("call_1", FunctionCall("f", '{"x": ')),)),
        Message("tool", None, tool_call_id="call_1"),
        Message("assistant", "No."),
        Message("assistant", (TextPart("No."),)),
    )


def test_only_the_results_behind_the_last_assistant_turn_answer_calls() -> None:
    called: list[Any] = [{"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f"}}]}]
    result = [{"role": "tool", "tool_call_id": name, "content": "3"} for name in ("a", "b")]
    assert parse_chat(body(messages=U)).answered_calls == ()
    assert parse_chat(body(messages=U + called)).answered_calls == ()
    assert parse_chat(body(messages=U + called + result)).answered_calls == ("b", "a")
    assert parse_chat(body(messages=U + called + result[:1] + U)).answered_calls == ("a",)
    assert parse_chat(body(messages=U + called + result + called + result[1:])).answered_calls == ("b",)


def test_parts_are_lines() -> None:
    assert Message("user", (TextPart("a"), TextPart("b"))).text == "a\nb"


@pytest.mark.parametrize(
    ("data", "param"),
    [
        (body(model=5), "model"),
        (body(model=""), "model"),
        (body(model="m" * 257), "model"),
        (json.dumps({"messages": U}).encode(), "model"),
        (json.dumps({"model": "m"}).encode(), "messages"),
        (body(messages=[]), "messages"),
        (body(messages=U * 4097), "messages"),
        (body(messages="hi"), "messages"),
        (body(messages=[*U, "hi"]), "messages[1]"),
        (turn(role="robot"), "messages[2].role"),
        (turn(role=None), "messages[2].role"),
        (turn(content=5), "messages[2].content"),
        (turn(content=None), "messages[2].content"),
        (turn(content=["hi"]), "messages[2].content[0]"),
        (turn(content=[{"type": "text"}]), "messages[2].content[0].text"),
        (turn(content=[{"type": "text", "text": 5}]), "messages[2].content[0].text"),
        (turn(content=[{"type": "text", "text": "a"}] * 513), "messages[2].content"),
        (
            turn(content=[{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {}}]),
            "messages[2].content[1]",
        ),
        (turn(content=[{"type": "input_audio", "input_audio": {}}]), "messages[2].content[0]"),
        (turn(name="n" * 257), "messages[2].name"),
        (turn(role="tool"), "messages[2].tool_call_id"),
        (turn(tool_calls=[tool("f")]), "messages[2].tool_calls"),
        (turn(role="assistant", tool_calls=[{"type": "function"}]), "messages[2].tool_calls[0].function"),
        (turn(role="assistant", tool_calls=[tool("")]), "messages[2].tool_calls[0].function.name"),
        (turn(role="assistant", tool_calls=[tool("f", arguments={})]), "messages[2].tool_calls[0].function.arguments"),
        (turn(role="assistant", tool_calls=[tool("f")] * 129), "messages[2].tool_calls"),
        (body(tools=[tool(f"f{number}") for number in range(129)]), "tools"),
        (body(tools=[tool("f"), {"type": "custom", "custom": {}}]), "tools[1].type"),
        (body(tools=[{"type": "function"}]), "tools[0].function"),
        (body(tools=[tool("a b")]), "tools[0].function.name"),
        (body(tools=[tool("f" * 65)]), "tools[0].function.name"),
        (body(tools=[tool("f"), tool("f")]), "tools[1].function.name"),
        (body(tools=[tool("f", parameters=[])]), "tools[0].function.parameters"),
        (body(tools=[tool("f", description="d" * 65537)]), "tools[0].function.description"),
        (body(tools=[tool("f", parameters={"enum": list(range(1001))})]), "tools[0].function.parameters"),
        (body(tools=[tool(f"f{n}", parameters={"description": "d" * 60000}) for n in range(20)]), "tools"),
        (body(tool_choice="required"), "tool_choice"),
        (body(tool_choice="sometimes"), "tool_choice"),
        (body(tool_choice={"type": "function"}, tools=[tool("f")]), "tool_choice"),
        (body(tool_choice=tool("g"), tools=[tool("f")]), "tool_choice"),
        (body(tool_choice={"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}}), "tool_choice"),
        (body(functions=[{"name": "f"}]), "functions"),
        (body(modalities=["text", "audio"]), "modalities"),
        (body(web_search_options={}), "web_search_options"),
        (body(parallel_tool_calls="yes"), "parallel_tool_calls"),
        (body(response_format={"type": "xml"}), "response_format.type"),
        (body(response_format={"type": "json_schema"}), "response_format.json_schema"),
        (
            body(response_format={"type": "json_schema", "json_schema": {"name": "a"}}),
            "response_format.json_schema.schema",
        ),
        (
            body(response_format={"type": "json_schema", "json_schema": {"name": "a b", "schema": {}}}),
            "response_format.json_schema.name",
        ),
        (body(stream="yes"), "stream"),
        (body(n=0), "n"),
        (body(n=9), "n"),
        (body(n=1.5), "n"),
        (body(n=True), "n"),
        (body(stop=["a"] * 5), "stop"),
        (body(stop=["a", ""]), "stop[1]"),
        (body(stop=""), "stop"),
        (body(stop=[5]), "stop[0]"),
        (body(stop="a" * 1025), "stop"),
        (body(seed=2**63), "seed"),
        (body(seed=-(2**63) - 1), "seed"),
        (body(temperature=2.01), "temperature"),
        (body(temperature=-0.01), "temperature"),
        (body(temperature="1"), "temperature"),
        (body(top_p=0), "top_p"),
        (body(top_p=1.01), "top_p"),
        (body(max_tokens=0), "max_tokens"),
        (body(max_tokens=2**31), "max_tokens"),
        (body(max_completion_tokens=-1), "max_completion_tokens"),
        (body(top_logprobs=21, logprobs=True), "top_logprobs"),
        (body(top_logprobs=1), "top_logprobs"),
        (body(presence_penalty=2.1), "presence_penalty"),
        (body(frequency_penalty=-2.1), "frequency_penalty"),
        (body(logit_bias={"5": 101}), "logit_bias.5"),
        (body(logit_bias={"x": 1}), "logit_bias"),
        (body(logit_bias={"5" * 10: 1}), "logit_bias"),
        (body(logit_bias={str(token): 1 for token in range(1025)}), "logit_bias"),
        (body(top_k=-2), "top_k"),
        (body(min_p=1.1), "min_p"),
        (body(repetition_penalty=0), "repetition_penalty"),
        (body(min_tokens=-1), "min_tokens"),
        (body(ignore_eos="yes"), "ignore_eos"),
        (body(stop_token_ids=[1, -1]), "stop_token_ids[1]"),
        (body(stop_token_ids=[1] * 65), "stop_token_ids"),
        (body(saltway={"namespace": 5}), "saltway.namespace"),
        (body(saltway={"namespace": "n" * 257}), "saltway.namespace"),
        (turn(content="\ud800"), "messages[2].content"),
        (body(tools=[tool("f", description="a\udc00b")]), "tools[0].function.description"),
    ],
)
def test_what_is_wrong_is_named_by_its_path(data: bytes, param: str) -> None:
    assert refused(data).param == param


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"null",
        b"[]",
        b'"x"',
        b"{",
        body() + b"x",
        b"\xff\xfe",
        body().replace(b'"hi"', b'"\xff"'),
        body().replace(b'"hi"', b"NaN"),
        body(temperature=0).replace(b'"temperature": 0', b'"temperature": NaN'),
        body(temperature=0).replace(b'"temperature": 0', b'"temperature": 1e999'),
        body(seed=0).replace(b'"seed": 0', b'"seed": ' + b"9" * 5000),
        body(x=0).replace(b'"x": 0', b'"x": ' + b"[" * 100000 + b"]" * 100000),
        body(x=0).replace(b'"x": 0', b'"x": ' + b'{"a":' * 3000 + b"1" + b"}" * 3000),
        body(tools=[tool("f", parameters=0)]).replace(
            b'"parameters": 0', b'"parameters": ' + b'{"a":' * 900 + b"1" + b"}" * 900
        ),
        b'{"\\ud800": 1}',
    ],
)
def test_bytes_that_are_no_request_are_refused(data: bytes) -> None:
    assert refused(data).code in ("invalid_json", "invalid_type", "invalid_schema")


def test_the_last_of_two_equal_keys_counts() -> None:
    assert parse_chat(body(n=1).replace(b'"n": 1', b'"n": 5, "n": 2')).n == 2


def test_errors_never_quote_the_client() -> None:
    marked = {"type": "text", "text": "a", "prompt_cache_breakpoint": {"mode": "secret"}}
    for data in (
        turn(content={"secret": 1}),
        turn(content=[marked]),
        turn(role="secret"),
        body(tool_choice="secret"),
        body(n="secret"),
    ):
        assert "secret" not in refused(data).message


def test_what_is_missing_has_one_code_wherever_it_is_missed() -> None:
    for data in (b'{"model": "m"}', turn(role="tool"), turn(content=[{}]), body(tools=[{"type": "function"}])):
        assert refused(data).code == "missing"


@pytest.mark.parametrize("mode", ["auto", "required"])
def test_allowed_tools_narrow_the_choice(mode: str) -> None:
    allowed = {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [tool("g")]}}
    request = parse_chat(body(tools=[tool("f"), tool("g")], tool_choice=allowed))
    assert request.tool_choice.mode == mode
    assert [one.name for one in request.callable_tools] == ["g"]
    assert len(request.tools) == 2


@pytest.mark.parametrize(
    ("fields", "calls"),
    [
        ({}, False),
        ({"tools": []}, False),
        ({"tools": [tool("f")]}, True),
        ({"tools": [tool("f")], "tool_choice": "none"}, False),
        ({"tools": [tool("f")], "tool_choice": tool("f")}, True),
        ({"tools": [tool(f"f{number}") for number in range(128)]}, True),
    ],
)
def test_calls_are_looked_for_only_where_they_may_be(fields: dict[str, Any], calls: bool) -> None:
    assert parse_chat(body(**fields)).may_call is calls


def test_the_bound_of_n_is_the_models() -> None:
    assert parse_chat(body(n=32, temperature=0), max_n=32).n == 32


_ANY: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
_FIELDS = st.sampled_from([*ChatRequest.__struct_fields__, "saltway", "max_completion_tokens", "functions"])


@settings(deadline=None)
@given(st.dictionaries(_FIELDS, _ANY, max_size=4))
def test_no_value_of_any_field_escapes_as_another_error(fields: dict[str, Any]) -> None:
    with suppress(BadRequestError):
        assert parse_chat(body(**fields)).model == "m" or "model" in fields


@settings(deadline=None)
@given(st.binary(max_size=60))
def test_no_bytes_escape_as_another_error(data: bytes) -> None:
    with pytest.raises(BadRequestError):
        parse_chat(data)
