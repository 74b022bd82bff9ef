"""Messages: roles, parts and calls, each error with its path."""

from collections.abc import Sequence

from gateway.chat import wire
from gateway.chat.messages import FunctionCall, Message, TextPart, ToolCall
from gateway.errors import BadRequestError

MAX_MESSAGES = 4096
MAX_PARTS = 512
MAX_CALLS = 128
MAX_NAME = 256
ROLES = ("system", "developer", "user", "assistant", "tool")


def parse_messages(turns: Sequence[wire.Turn]) -> tuple[Message, ...]:
    """At least one message. Raises BadRequestError."""
    _between(len(turns), 1, MAX_MESSAGES, "messages")
    return tuple(_message(turn, f"messages[{index}]") for index, turn in enumerate(turns))


def _message(turn: wire.Turn, at: str) -> Message:
    if turn.role not in ROLES:
        raise BadRequestError(f"Must be one of {', '.join(ROLES)}.", param=f"{at}.role", code="invalid_value")
    calls = _calls(turn.tool_calls or [], f"{at}.tool_calls")
    if calls and turn.role != "assistant":
        raise BadRequestError("Only an assistant turn makes calls.", param=f"{at}.tool_calls", code="invalid_value")
    if turn.role == "tool" and turn.tool_call_id is None:
        message = "A tool reply names the call that it answers."
        raise BadRequestError(message, param=f"{at}.tool_call_id", code="missing")
    for value, field in ((turn.name, "name"), (turn.tool_call_id, "tool_call_id")):
        _between(len(value or ""), 0, MAX_NAME, f"{at}.{field}")
    return Message(turn.role, _content(turn, at), turn.name, calls, turn.tool_call_id)


def _content(turn: wire.Turn, at: str) -> str | tuple[TextPart, ...] | None:
    if turn.content is None:
        # A call that returned nothing is sent as null by some clients; nobody means a silent user.
        if turn.role not in ("assistant", "tool"):
            raise BadRequestError("This field is required.", param=f"{at}.content", code="missing")
        return turn.refusal
    if isinstance(turn.content, str):
        return turn.content
    _between(len(turn.content), 0, MAX_PARTS, f"{at}.content")
    return tuple(_part(part, f"{at}.content[{index}]") for index, part in enumerate(turn.content))


def _part(part: wire.Part, at: str) -> TextPart:
    if part.type not in ("text", "refusal"):
        raise BadRequestError("Only text parts are understood by this model.", param=at, code="unsupported")
    text = part.text if part.type == "text" else part.refusal
    if text is None:
        raise BadRequestError("This field is required.", param=f"{at}.{part.type}", code="missing")
    return TextPart(text)


def _calls(calls: Sequence[wire.Call], at: str) -> tuple[ToolCall, ...]:
    _between(len(calls), 0, MAX_CALLS, at)
    return tuple(_call(call, f"{at}[{index}]") for index, call in enumerate(calls))


def _call(call: wire.Call, at: str) -> ToolCall:
    if call.function is None:
        raise BadRequestError("Only function calls are understood.", param=f"{at}.function", code="missing")
    _between(len(call.function.name), 1, MAX_NAME, f"{at}.function.name")
    _between(len(call.id or ""), 0, MAX_NAME, f"{at}.id")
    # Arguments are not parsed: what a length limit cut short must be accepted as history.
    return ToolCall(call.id or "", FunctionCall(call.function.name, call.function.arguments or ""))


def _between(size: int, least: int, most: int, param: str) -> None:
    if not least <= size <= most:
        raise BadRequestError(f"Its length must be {least} to {most}.", param=param, code="out_of_range")


def short(text: str, param: str) -> str:
    """The text, if it is no longer than a name may be."""
    _between(len(text), 0, MAX_NAME, param)
    return text
