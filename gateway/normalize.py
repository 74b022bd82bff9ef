"""Class A normalization: one form for requests that render to the same ids.

It makes equal conversations equal as values too, and is always on. Nothing is reordered, and nothing that a template
could print is changed.
"""

from msgspec.structs import replace

from gateway.chat.messages import EMPTY_PARAMETERS, FunctionCall, Message, Tool, ToolCall
from gateway.chat.request import ChatRequest
from gateway.tools.arguments import canonical


def normalize(request: ChatRequest) -> ChatRequest:
    """Laws: render(normalize(x)) == render(x); normalize(normalize(x)) == normalize(x)."""
    return replace(
        request,
        messages=tuple(_message(message) for message in request.messages),
        tools=tuple(_tool(tool) for tool in request.tools),
    )


def _message(message: Message) -> Message:
    """A list of parts and null become a string; a developer is the system; empty names are none."""
    return Message(
        role="system" if message.role == "developer" else message.role,
        content=message.text,
        name=message.name or None,
        tool_calls=tuple(_call(call) for call in message.tool_calls),
        tool_call_id=message.tool_call_id or None,
    )


def _call(call: ToolCall) -> ToolCall:
    return ToolCall(call.id, FunctionCall(call.function.name, canonical(call.function.arguments)))


def _tool(tool: Tool) -> Tool:
    parameters = EMPTY_PARAMETERS if tool.parameters is None else tool.parameters
    return Tool(tool.name, tool.description or None, parameters, tool.strict)
