"""Tool calls through the official SDK."""

import json
from typing import Any

import jsonschema
import pytest
from openai import OpenAI

from tests.e2e.workers import Workers, eventually

MODEL = "smollm2"
WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Current weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "maxLength": 20},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
            },
            "required": ["city", "unit"],
            "additionalProperties": False,
        },
    },
}
TIME: Any = {
    "type": "function",
    "function": {
        "name": "get_time",
        "description": "The time now.",
        "parameters": {"type": "object", "properties": {}},
    },
}
ASK: list[Any] = [{"role": "user", "content": "What is the weather in Paris?"}]


def _ask(client: OpenAI, **fields: Any) -> Any:
    defaults: dict[str, Any] = {"messages": ASK, "tools": [WEATHER, TIME], "max_tokens": 80, "temperature": 0}
    return client.chat.completions.create(model=MODEL, **(defaults | fields))


def _check_call(call: Any) -> None:
    schema = {tool["function"]["name"]: tool["function"]["parameters"] for tool in (WEATHER, TIME)}[call.function.name]
    jsonschema.validate(json.loads(call.function.arguments), schema)
    assert call.type == "function"
    assert call.id


def test_required_gives_calls_that_fit_their_schemas(acme: OpenAI) -> None:
    (choice,) = _ask(acme, tool_choice="required", parallel_tool_calls=False).choices
    assert choice.finish_reason == "tool_calls"
    (call,) = choice.message.tool_calls
    _check_call(call)


def test_a_turn_that_ends_in_a_call_is_leased_whole_while_the_tool_runs(acme: OpenAI, workers: Workers) -> None:
    before = workers.granted()
    reply = _ask(acme, tool_choice="required", parallel_tool_calls=False)
    whole_blocks = (reply.usage.total_tokens - 1) // 16
    assert eventually(lambda: workers.granted() >= before + whole_blocks)


def test_a_named_function_is_the_one_called(acme: OpenAI) -> None:
    named = {"type": "function", "function": {"name": "get_weather"}}
    (choice,) = _ask(acme, tool_choice=named).choices
    assert choice.finish_reason == "stop"
    assert [call.function.name for call in choice.message.tool_calls] == ["get_weather"]
    _check_call(choice.message.tool_calls[0])


def test_none_gives_text(acme: OpenAI) -> None:
    (choice,) = _ask(acme, tool_choice="none", max_tokens=12).choices
    assert choice.message.tool_calls is None
    assert choice.message.content


def test_auto_gives_text_or_valid_calls(acme: OpenAI) -> None:
    (choice,) = _ask(acme, tool_choice="auto").choices
    for call in choice.message.tool_calls or []:
        _check_call(call)
    assert choice.message.content or choice.message.tool_calls


@pytest.mark.parametrize("tool_choice", ["required", {"type": "function", "function": {"name": "get_weather"}}])
def test_streamed_deltas_fold_to_the_plain_call(acme: OpenAI, tool_choice: Any) -> None:
    fields = {"tool_choice": tool_choice, "parallel_tool_calls": False}
    (plain,) = _ask(acme, **fields).choices[0].message.tool_calls
    with _ask(acme, stream=True, **fields) as stream:
        deltas = [delta for chunk in stream for choice in chunk.choices for delta in (choice.delta.tool_calls or [])]
    first, *rest = deltas
    assert first.index == 0
    assert first.id
    assert first.function.name == plain.function.name
    assert all(delta.id is None and delta.function.name is None for delta in rest)
    assert "".join(delta.function.arguments or "" for delta in deltas) == plain.function.arguments


def test_what_we_emit_is_accepted_as_history_and_its_prompt_is_reused(acme: OpenAI) -> None:
    first = _ask(acme, tool_choice="required", parallel_tool_calls=False)
    message = first.choices[0].message
    history = [
        *ASK,
        message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": '{"degrees": 18}'},
    ]
    second = _ask(acme, messages=history, max_tokens=12)
    assert second.usage.prompt_tokens > first.usage.prompt_tokens
    assert second.usage.prompt_tokens_details.cached_tokens >= first.usage.prompt_tokens // 16 * 16
