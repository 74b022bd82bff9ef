"""Agent sessions to replay: made up, or read from a file of recorded ones."""

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Message = dict[str, Any]
Tool = dict[str, Any]

_MAX_LINE = 4 << 20
_VERBS = ("get", "list", "create", "update", "cancel")
_NOUNS = ("order", "invoice", "customer", "shipment", "ticket", "refund", "product", "address")


@dataclass(frozen=True, slots=True)
class Session:
    """One agent's conversation.

    messages   the whole of it, assistant messages included
    turns      how many messages each request carries: the history up to an assistant message, which is not in it
    """

    name: str
    tools: list[Tool]
    messages: list[Message]
    turns: list[int]

    def request(self, turn: int) -> list[Message]:
        return self.messages[: self.turns[turn]]


def made_up_tools(count: int = 20) -> list[Tool]:
    """Function tools of a support desk, each with a small strict schema."""
    names = [f"{verb}_{noun}" for noun in _NOUNS for verb in _VERBS][:count]
    return [_tool(name, ["id", "note"], f"{name.replace('_', ' ').capitalize()} by its id.") for name in names]


def made_up(index: int, *, turns: int = 6, tools: int = 20) -> Session:
    """A support agent whose system prompt differs from every other session's from its first sentence on."""
    functions = made_up_tools(tools)
    desk = f"Desk {index} of the support team"
    messages: list[Message] = [
        {"role": "system", "content": f"{desk} answers in one short sentence. Use a tool when an id is given."}
    ]
    marks = []
    for turn in range(turns):
        name = functions[(index + turn) % len(functions)]["function"]["name"]
        messages.append(
            {"role": "user", "content": f"Request {turn} at desk {index}: {name} for id {100 * index + turn}."}
        )
        marks.append(len(messages))
        messages += _call_and_result(name, f"call_{index}_{turn}", 100 * index + turn)
    return Session(f"desk-{index}", functions, messages, marks)


def recorded(path: Path) -> Iterator[Session]:
    """Sessions of a file with one JSON object a line, {"session", "messages"}; gzip by its suffix.

    Their tools are not recorded, so each session declares the functions that the whole file calls.
    """
    lines = list(_lines(path))
    tools = _tools_of(lines)
    for number, line in enumerate(lines):
        messages = [_clean(message) for message in line["messages"]]
        turns = [at for at, message in enumerate(messages) if message["role"] == "assistant" and at > 0]
        yield Session(str(line.get("session", number)), tools, messages, turns)


def _call_and_result(name: str, call_id: str, number: int) -> list[Message]:
    arguments = json.dumps({"id": str(number), "note": "as asked"}, separators=(",", ":"))
    call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call_id, "content": json.dumps({"id": number, "status": "done"})},
    ]


def _tool(name: str, fields: list[str], description: str) -> Tool:
    schema = {
        "type": "object",
        "properties": {field: {"type": "string", "maxLength": 24} for field in fields},
        "required": fields,
        "additionalProperties": False,
    }
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as file:
        while line := file.readline(_MAX_LINE):
            yield json.loads(line)


def _tools_of(lines: list[dict[str, Any]]) -> list[Tool]:
    fields: dict[str, set[str]] = {}
    for line in lines:
        for message in line["messages"]:
            for call in message.get("tool_calls") or ():
                arguments = json.loads(call["function"]["arguments"] or "{}")
                fields.setdefault(call["function"]["name"], set()).update(arguments)
    return [_tool(name, sorted(fields[name]), name.replace("_", " ").capitalize()) for name in sorted(fields)]


def _clean(message: Message) -> Message:
    """Only the fields of the chat API; recorders add their own."""
    known = ("role", "content", "tool_calls", "tool_call_id", "name")
    return {key: message[key] for key in known if message.get(key) is not None or key == "content"}
