"""A multi-turn tool-calling session: what is reused, and that the gateway foresaw it."""

from itertools import cycle
from typing import Any

from openai import OpenAI

from bench.agents import made_up_tools
from tests.e2e.workers import Workers, eventually

MODEL = "smollm2"
TURNS = 6


def test_from_turn_two_on_the_previous_prompt_is_cached_and_foreseen(acme: OpenAI, workers: Workers) -> None:
    tools: Any = made_up_tools(20)
    messages: list[Any] = [{"role": "system", "content": "You run the support desk of session reuse."}]
    # These change the grammar and the sampler, never the prompt, so none of them may cost reuse.
    variations: cycle[dict[str, Any]] = cycle(
        [
            {"tool_choice": "required", "parallel_tool_calls": False},
            {"tool_choice": "none", "temperature": 0.7, "seed": 1},
            {"tool_choice": {"type": "function", "function": {"name": tools[3]["function"]["name"]}}},
            {"tool_choice": "none", "response_format": {"type": "json_object"}},
        ]
    )
    previous = 0
    for turn in range(TURNS):
        messages.append({"role": "user", "content": f"Request {turn}: look at order {turn}."})
        raw = acme.chat.completions.with_raw_response.create(
            model=MODEL, messages=messages, tools=tools, max_tokens=48, **({"temperature": 0.0} | next(variations))
        )
        reply = raw.parse()
        assert reply.usage is not None
        assert reply.usage.prompt_tokens_details is not None
        cached = reply.usage.prompt_tokens_details.cached_tokens
        assert cached is not None
        assert cached >= previous // 16 * 16
        assert cached >= 0.9 * previous
        assert int(raw.headers["x-saltway-predicted-tokens"]) == cached
        assert int(raw.headers["x-saltway-cached-tokens"]) == cached
        # A client that is quicker than the events is served as well, but that is not foreseen.
        assert eventually(workers.indexed)
        previous = reply.usage.prompt_tokens
        messages += _history(reply.choices[0].message)


def _history(message: Any) -> list[dict[str, Any]]:
    results = [
        {"role": "tool", "tool_call_id": call.id, "content": '{"status": "done"}'} for call in message.tool_calls or []
    ]
    return [message.model_dump(exclude_none=True), *results]
