"""Chat templates in a sandbox: the model's own when it prints tools, else the declared one of its family."""

import json
from collections.abc import Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NoReturn

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from gateway.errors import BadRequestError
from gateway.render.callids import LENGTH

OWN = "own"
DECLARED = "chatml-hermes"
CHATML = ("<|im_start|>", "<|im_end|>")
"""The control tokens that the declared template writes."""

_TRIPPED = (ArithmeticError, LookupError, TypeError, ValueError, AttributeError, RecursionError)

_DECLARED_FILE = Path(__file__).parent.parent / "templates" / f"{DECLARED}.jinja"
_PROBE_TOOL = {
    "type": "function",
    "function": {"name": "saltway_probe", "description": "probe", "parameters": {"type": "object", "properties": {}}},
}
_PROBE = [{"role": "user", "content": "saltway-probe"}]


class PrintedTool(dict[str, Any]):
    """A tool as templates see it; what `tojson` prints of it is written once and known afterwards."""

    @cached_property
    def json(self) -> str:
        return json.dumps(self, ensure_ascii=False)

    @property
    def name(self) -> str:
        return str(self["function"]["name"])


class ChatTemplate:
    """One compiled template. `render` is pure: no clock is offered, so that the same messages give the same text.

    Raises BadRequestError when the template refuses the messages or cannot print them.
    """

    def __init__(self, name: str, source: str, **variables: Any) -> None:
        self.name = name
        try:
            self._template = _environment().from_string(source)
        except (jinja2.TemplateError, SyntaxError, RecursionError) as error:
            raise ValueError(f"the chat template does not compile: {error}") from error
        self._variables = variables

    def render(
        self, messages: list[dict[str, Any]], tools: Sequence[dict[str, Any]] | None, *, generation: bool = True
    ) -> str:
        try:
            return self._template.render(
                messages=messages, tools=tools, add_generation_prompt=generation, **self._variables
            )
        except _RefusedError as error:
            raise BadRequestError(f"The model's chat template refused: {error}", param="messages") from None
        # A template is a program; whatever it trips over came from the messages.
        except (jinja2.TemplateError, *_TRIPPED):
            message = "The model's chat template cannot print these messages."
            raise BadRequestError(message, param="messages", code="template") from None

    @property
    def prints_tools(self) -> bool:
        try:
            return self.render(_PROBE, [_PROBE_TOOL]) != self.render(_PROBE, None)
        except BadRequestError:
            return False

    @property
    def prints_messages(self) -> bool:
        try:
            return _PROBE[0]["content"] in self.render(_PROBE, None)
        except BadRequestError:
            return False

    @property
    def wants_short_ids(self) -> bool:
        """Whether it refuses ids of calls as we and OpenAI make them, and takes shorter ones: Mistral's do."""
        return not self._prints_call("call_" + "0" * 24) and self._prints_call("0" * LENGTH)

    def _prints_call(self, call_id: str) -> bool:
        call = {"id": call_id, "type": "function", "function": {"name": "saltway_probe", "arguments": {}}}
        turn = {"role": "assistant", "content": "", "tool_calls": [call]}
        try:
            self.render([*_PROBE, turn, {"role": "tool", "content": "", "tool_call_id": call_id}], None)
        except BadRequestError:
            return False
        return True

    @property
    def generation_prompt(self) -> str:
        """What opens the assistant's turn; "" when the template does not simply append it."""
        with_it, without = self.render(_PROBE, None), self.render(_PROBE, None, generation=False)
        return with_it[len(without) :] if with_it.startswith(without) else ""

    @property
    def default_system(self) -> str | None:
        """The system text that the template brings when a conversation has none (ChatML only)."""
        start, end = f"{CHATML[0]}system\n", CHATML[1]
        text = self.render(_PROBE, None)
        return text[len(start) : text.index(end)] if text.startswith(start) and end in text else None


def choose(source: str, special_tokens: list[str], **variables: Any) -> ChatTemplate:
    """The template for a model whose own is `source`.

    A model that is not of the ChatML family keeps its own template; if that ignores tools, requests with tools are
    refused at rendering. ValueError for one that prints no messages, as a base model's missing template does: every
    prompt would be the same.
    """
    own = ChatTemplate(OWN, source, **variables)
    if not set(CHATML) <= set(special_tokens):
        if not own.prints_messages:
            raise ValueError("its chat template prints no messages; it may be a base model, which cannot chat")
        return own
    if own.prints_tools:
        return own
    return ChatTemplate(DECLARED, _DECLARED_FILE.read_text("utf-8"), default_system=own.default_system, **variables)


class _RefusedError(Exception):
    """Raised by the template itself."""


def _refuse(message: str) -> NoReturn:
    raise _RefusedError(str(message)[:200])


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """As transformers renders it: not escaped for HTML, letters kept, keys in their order unless a template asks."""
    if isinstance(value, PrintedTool) and indent is None and not (ensure_ascii or separators or sort_keys):
        return value.json
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


@cache
def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=False, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _refuse
    return environment
