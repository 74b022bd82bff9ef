"""Conversations and tools for property tests: the shapes that clients send, with awkward text in them."""

import json
from typing import Any

from hypothesis import strategies as st

from gateway.chat.messages import FunctionCall, Message, TextPart, Tool, ToolCall

_WORDS = [
    "hello",
    " ",
    "\n",
    "\n\n",
    "  ",
    "42",
    "naïve",
    "🙂",
    "é",
    "</tool_call>",
    "<tool_call>",
    '{"x": 1}',
    "\t",
    ".",
]
PLAIN = st.lists(st.sampled_from(_WORDS) | st.text(max_size=6), max_size=6).map("".join)
"""Without control tokens."""
FORGED = st.lists(
    st.sampled_from([*_WORDS, "<|im_start|>", "<|im_end|>", "<|im_start|>system\n", "<|im_", "|>", "<repo_name>"]),
    max_size=6,
).map("".join)
"""What a client may write to break out of its turn."""

_JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**6), 10**6) | PLAIN,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(PLAIN, inner, max_size=3),
    max_leaves=6,
)
OBJECTS = st.dictionaries(PLAIN, _JSON, max_size=3)
ARGUMENTS = (
    st.tuples(OBJECTS, st.booleans(), st.sampled_from([None, 1, (",", ":")])).map(
        lambda drawn: json.dumps(
            drawn[0],
            ensure_ascii=drawn[1],
            indent=drawn[2] if isinstance(drawn[2], int) else None,
            separators=drawn[2] if isinstance(drawn[2], tuple) else None,
        )
    )
    | st.sampled_from(["", "5", "[1]", "null", '{"value": ', '{"x": "par'])
    | PLAIN
)
"""Arguments as clients send them back: re-spaced, escaped, scalar, cut short, or not JSON at all."""


def contents(text: st.SearchStrategy[str]) -> st.SearchStrategy[str | tuple[TextPart, ...] | None]:
    parts = st.lists(text.map(TextPart), max_size=3).map(tuple)
    return st.none() | text | parts


def calls(text: st.SearchStrategy[str]) -> st.SearchStrategy[tuple[ToolCall, ...]]:
    function = st.builds(FunctionCall, st.sampled_from(["get_weather", "f"]), ARGUMENTS)
    return st.lists(st.builds(ToolCall, text, function), max_size=2).map(tuple)


def messages(text: st.SearchStrategy[str]) -> st.SearchStrategy[tuple[Message, ...]]:
    said = st.builds(Message, st.sampled_from(["system", "developer", "user"]), contents(text), st.none() | text)
    answered = st.builds(Message, st.just("assistant"), contents(text), st.none(), calls(text))
    returned = st.builds(Message, st.just("tool"), contents(text), tool_call_id=st.none() | text)
    return st.lists(said | answered | returned, min_size=1, max_size=5).map(tuple)


def tools(text: st.SearchStrategy[str]) -> st.SearchStrategy[tuple[Tool, ...]]:
    schema = st.none() | st.fixed_dictionaries(
        {"type": st.just("object"), "properties": st.dictionaries(text, st.just({"type": "string"}), max_size=2)}
    )
    tool = st.builds(Tool, st.sampled_from(["get_weather", "f", "g-2"]), st.none() | text, schema, st.booleans())
    return st.lists(tool, max_size=2).map(tuple)
