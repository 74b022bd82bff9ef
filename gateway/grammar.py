"""What a reply may look like, as an llguidance grammar: tool choice, parallel calls and response format.

The grammar changes what is sampled and never what is rendered, so none of these fields costs cached tokens. It writes
calls exactly as the template prints them in history.
"""

import json
from collections.abc import Sequence
from typing import Any

from llguidance import LLMatcher, LLParserLimits, regex_to_lark

from gateway.chat.messages import EMPTY_PARAMETERS, ResponseFormat, Tool
from gateway.chat.request import ChatRequest
from gateway.errors import BadRequestError
from gateway.schemas.bounds import Bounds
from gateway.schemas.gate import SchemaGate, json_object
from gateway.schemas.limits import SchemaError
from gateway.tools.hermes import CLOSE, OPEN

_TYPED_BY = ("type", "$ref", "anyOf", "oneOf", "allOf")


def constraint_for(
    request: ChatRequest, gate: SchemaGate, *, bounds: Bounds | None = None, partition: str = ""
) -> str | None:
    """The grammar of a reply to `request`; None when any text will do.

    auto       free text, and once `<tool_call>` opens, calls of declared tools with valid arguments to the end
    required   one call or more; named: one call of that tool; none: text only
    format     what a text answer must be; beside tools, the model chooses between an answer and calls

    Every schema of the request passes the gate, needed or not, so that an error does not depend on the tool choice.
    Raises SchemaError (400) naming the keyword. CPU bound for new schemas: call it off the event loop.
    """
    bounds = (bounds or Bounds()).within(request.max_tokens)
    answer = _answer("answer" if request.may_call else "start", request, gate, bounds, partition)
    arguments = {
        tool.name: _arguments_schema(tool, index, gate, bounds, partition) for index, tool in enumerate(request.tools)
    }
    if not request.may_call:
        return answer
    single = request.tool_choice.mode == "named" or not request.parallel_tool_calls
    calls = _calls(request.callable_tools, arguments, 1 if single else bounds.calls)
    if request.tool_choice.mode != "auto":
        return f"start: {_literal(OPEN)} calls\n" + calls
    if answer is not None:
        return f"start: answer | {_literal(OPEN)} calls\n{answer}" + calls
    return _FREE_TEXT + calls


_FREE_TEXT = f"""start: TEXT | opener calls
TEXT: /(?s:.*)/ & ~/(?s:.*{OPEN}.*)/
opener[lazy]: {json.dumps(OPEN)} | SPOKEN
SPOKEN: /(?s:.+)\\n{OPEN}/ & ~/(?s:.*{OPEN}.+)/
"""
"""Text without the opener, or text, a line break and the opener: where the template puts it when it prints history.

Two lexemes run side by side and the opener decides between them, since llguidance does not backtrack into text.
"""


def _calls(tools: Sequence[Tool], arguments: dict[str, str], most: int) -> str:
    """One to `most` calls; the first opener has been written."""
    more = f" ({_literal(chr(10) + OPEN)} call){{0,{most - 1}}}" if most > 1 else ""
    names = [_literal(f'{{"name": {json.dumps(tool.name)}, "arguments": ') for tool in tools]
    alternatives = " | ".join(f"{name} arguments_{index} {_literal('}')}" for index, name in enumerate(names))
    lines = [
        f"calls: call{more}",
        f"call: {_literal(chr(10))} ({alternatives}) {_literal(chr(10) + CLOSE)}",
        *(f"arguments_{index}: %json {arguments[tool.name]}" for index, tool in enumerate(tools)),
    ]
    return "\n".join(lines) + "\n"


def _literal(text: str) -> str:
    """A Lark string; its escapes are JSON's, and it wants one for DEL too."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _answer(rule: str, request: ChatRequest, gate: SchemaGate, bounds: Bounds, partition: str) -> str | None:
    """The rule of a text answer, under this name, and what it needs; None when any text will do."""
    wanted = request.response_format
    match wanted.type:
        case "json_object":
            return f"{rule}: %json {json_object(bounds)}\n"
        case "json_schema":
            assert wanted.json_schema is not None
            schema = gate.admit(wanted.json_schema, wanted.at, strict=wanted.strict, bounds=bounds, partition=partition)
            return f"{rule}: %json {schema}\n"
        case "choice":
            return f"{rule}: {' | '.join(map(_literal, wanted.choices))}\n"
        case "regex":
            return f"{rule}: PATTERN\nPATTERN: /{_pattern(wanted)}/\n"
        case "grammar" if request.may_call:
            message = "A grammar cannot be combined with tools that may be called."
            raise BadRequestError(message, param=wanted.at, code="unsupported")
        case "grammar":
            return wanted.text
    return None


def _pattern(wanted: ResponseFormat) -> str:
    r"""The expression as Lark takes it between slashes; \d is an ASCII digit."""
    spelled: str = regex_to_lark(wanted.text)
    failed, _ = LLMatcher.validate_grammar_with_warnings(
        LLMatcher.grammar_from_lark(f"start: P\nP: /{spelled}/\n"), limits=LLParserLimits(verbose_errors=False)
    )
    if failed:
        message = "This expression cannot be enforced: it is not valid, looks around or back, or is too complex."
        raise BadRequestError(message, param=wanted.at, code="invalid_grammar")
    return spelled


def _arguments_schema(tool: Tool, index: int, gate: SchemaGate, bounds: Bounds, partition: str) -> str:
    at = f"tools[{index}].function.parameters"
    schema: dict[str, Any] = EMPTY_PARAMETERS if tool.parameters is None else tool.parameters
    if not any(keyword in schema for keyword in _TYPED_BY):
        schema = {"type": "object", **schema}
    if "type" in schema and schema["type"] != "object":
        raise SchemaError("Arguments are an object.", f"{at}.type", "type")
    return gate.admit(schema, at, strict=tool.strict, bounds=bounds, partition=partition)
