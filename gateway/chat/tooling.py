"""Tools, tool choice and response format: names, counts and the outer bounds of their schemas."""

import re
from collections.abc import Sequence

from gateway.chat import wire
from gateway.chat.messages import ResponseFormat, Tool, ToolChoice
from gateway.errors import BadRequestError
from gateway.schemas.limits import MAX_TOTAL_BYTES, measure

MAX_TOOLS = 128
MAX_DESCRIPTION = 64 * 1024
NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def parse_tools(specs: Sequence[wire.ToolSpec]) -> tuple[Tool, ...]:
    """Functions in the order sent. An empty list is no tools. Raises BadRequestError."""
    if len(specs) > MAX_TOOLS:
        raise BadRequestError(f"At most {MAX_TOOLS} tools.", param="tools", code="out_of_range")
    tools = tuple(_tool(spec, f"tools[{index}]") for index, spec in enumerate(specs))
    seen: set[str] = set()
    total = 0
    for index, tool in enumerate(tools):
        if tool.name in seen:
            message = "Two tools have this name."
            raise BadRequestError(message, param=f"tools[{index}].function.name", code="invalid_value")
        seen.add(tool.name)
        if tool.parameters is not None:
            total += measure(tool.parameters, f"tools[{index}].function.parameters")
    if total > MAX_TOTAL_BYTES:
        raise BadRequestError(f"All schemas together exceed {MAX_TOTAL_BYTES} bytes.", param="tools", code="too_large")
    return tools


def _tool(spec: wire.ToolSpec, at: str) -> Tool:
    if spec.type != "function":
        raise BadRequestError("Only function tools are understood.", param=f"{at}.type", code="unsupported")
    if spec.function is None:
        raise BadRequestError("This field is required.", param=f"{at}.function", code="missing")
    function = spec.function
    if not NAME.fullmatch(function.name):
        message = "A name has 1 to 64 letters, digits, underscores and dashes."
        raise BadRequestError(message, param=f"{at}.function.name", code="invalid_value")
    if len(function.description or "") > MAX_DESCRIPTION:
        message = f"At most {MAX_DESCRIPTION} characters."
        raise BadRequestError(message, param=f"{at}.function.description", code="out_of_range")
    return Tool(function.name, function.description, function.parameters, function.strict is True)


def parse_choice(choice: str | wire.Choice | None, tools: Sequence[Tool]) -> ToolChoice:
    """The four modes, and `allowed_tools`, which narrows auto or required. Raises BadRequestError."""
    parsed = _choice(choice)
    if parsed.mode in ("required", "named") and not tools:
        raise BadRequestError("Needs `tools`.", param="tool_choice", code="invalid_value")
    declared = {tool.name for tool in tools}
    if parsed.names is not None and not declared.issuperset(parsed.names):
        raise BadRequestError("It names a tool that is not in `tools`.", param="tool_choice", code="invalid_value")
    return parsed


def _choice(choice: str | wire.Choice | None) -> ToolChoice:
    match choice:
        case None | "auto":
            return ToolChoice()
        case "none":
            return ToolChoice("none")
        case "required":
            return ToolChoice("required")
        case wire.Choice(type="function", function=wire.Named(name=name)):
            return ToolChoice("named", (name,))
        case wire.Choice(type="allowed_tools", allowed_tools=wire.AllowedTools(mode="auto" | "required" as mode)):
            assert choice.allowed_tools is not None
            names = tuple(tool.function.name for tool in choice.allowed_tools.tools if tool.function is not None)
            if names:
                return ToolChoice("auto" if mode == "auto" else "required", names)
    message = "Must be none, auto, required, a function, or allowed tools."
    raise BadRequestError(message, param="tool_choice", code="invalid_value")


def parse_format(spec: wire.Format | None) -> ResponseFormat:
    """Raises BadRequestError; whether a schema can be enforced is decided later, by the gate."""
    match spec:
        case None | wire.Format(type="text"):
            return ResponseFormat()
        case wire.Format(type="json_object"):
            return ResponseFormat("json_object")
        case wire.Format(type="json_schema", json_schema=wire.SchemaSpec() as inner):
            return _schema_format(inner)
    if spec.type == "json_schema":
        raise BadRequestError("This field is required.", param="response_format.json_schema", code="missing")
    message = "Must be text, json_object or json_schema."
    raise BadRequestError(message, param="response_format.type", code="invalid_value")


def _schema_format(spec: wire.SchemaSpec) -> ResponseFormat:
    at = "response_format.json_schema"
    if not NAME.fullmatch(spec.name):
        message = "A name has 1 to 64 letters, digits, underscores and dashes."
        raise BadRequestError(message, param=f"{at}.name", code="invalid_value")
    if spec.schema is None:
        raise BadRequestError("This field is required.", param=f"{at}.schema", code="missing")
    measure(spec.schema, f"{at}.schema")
    return ResponseFormat("json_schema", spec.schema, spec.strict is True, at=f"{at}.schema")
