"""The types of a conversation, as the official SDK sends them."""

from typing import Any, Literal

import msgspec

EMPTY_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}}
"""What a function without `parameters` takes."""


class TextPart(msgspec.Struct, frozen=True):
    """One piece of a message; every part that reaches this type is text."""

    text: str


class FunctionCall(msgspec.Struct, frozen=True):
    """`arguments` is whatever text was sent: usually JSON, and accepted when it is not, as when we cut it short."""

    name: str
    arguments: str


class ToolCall(msgspec.Struct, frozen=True):
    """A call that an assistant turn made."""

    id: str
    function: FunctionCall


class Message(msgspec.Struct, frozen=True):
    """One turn. `content` keeps the shape that was sent; `text` is what it says."""

    role: str
    content: str | tuple[TextPart, ...] | None = None
    name: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None

    @property
    def text(self) -> str:
        """A string is itself, null is empty, parts are lines."""
        if isinstance(self.content, str):
            return self.content
        return "\n".join(part.text for part in self.content or ())


class Tool(msgspec.Struct, frozen=True):
    """A function that the model may call. `parameters` is a JSON Schema; None takes no arguments."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool = False


class ToolChoice(msgspec.Struct, frozen=True):
    """How freely the model may call; `names` narrows the tools it may use (None: all of them)."""

    mode: Literal["none", "auto", "required", "named"] = "auto"
    names: tuple[str, ...] | None = None


class ResponseFormat(msgspec.Struct, frozen=True):
    """The shape that a text answer must have.

    json_schema   for that type only
    text          the regular expression, or the grammar in llguidance's Lark dialect
    choices       the texts of which the answer is one
    at            the field of the request that says it
    """

    type: Literal["text", "json_object", "json_schema", "regex", "choice", "grammar"] = "text"
    json_schema: dict[str, Any] | None = None
    strict: bool = False
    text: str = ""
    choices: tuple[str, ...] = ()
    at: str = "response_format"


class StreamOptions(msgspec.Struct, frozen=True):
    include_usage: bool = False
