"""A conversation, rendered once to the ids that every worker of the model will see."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile
from typing import Any

import msgspec

from cacheplane.attribution import Part, Segment
from gateway.chat.messages import EMPTY_PARAMETERS, Message, Tool, ToolCall
from gateway.errors import BadRequestError
from gateway.render.callids import short
from gateway.render.masking import Mask
from gateway.render.outline import Stretch, outline
from gateway.render.prefix import Follows
from gateway.render.templates import DECLARED, PrintedTool, choose
from gateway.render.tokens import CACHE_BYTES, Tokens
from gateway.tools.arguments import canonical, is_object


class RendererModel(msgspec.Struct, frozen=True, kw_only=True):
    """What rendering needs of a model, as GET /model of its worker hands it out."""

    tokenizer: str
    chat_template: str
    special_tokens: list[str]
    bos_id: int | None = None
    eos_id: int | None = None


@dataclass(frozen=True, slots=True)
class Rendered:
    """The prompt of one request.

    tokens     its ids as 32-bit words, as they are hashed; they end where the assistant's turn begins
    segments   its parts in order, each from the first token that begins in it; the last ends before that turn's opening
    """

    tokens: "array[int]"
    segments: tuple[Segment, ...] = ()

    @property
    def system_tokens(self) -> int:
        """Of the system prompt and the tools, with the template's own words around them: all before the history."""
        leading = takewhile(lambda segment: segment.part is not Part.HISTORY, self.segments)
        return max((segment.start + segment.tokens for segment in leading), default=0)


class Renderer:
    """Renders for one model. Thread-safe; a new conversation costs about a microsecond a token, a known one less.

    template_name     "own" for the model's own template, "chatml-hermes" for the declared one
    supports_tools    whether the template prints them
    """

    def __init__(self, model: RendererModel, cache_bytes: int = CACHE_BYTES) -> None:
        self._tokens = Tokens(model.tokenizer, model.special_tokens, cache_bytes)
        self._template = choose(model.chat_template, model.special_tokens, **self._variables(model))
        self._opening = self._generation_prompt()
        turn = self._tokens.controls.match(self._opening)
        self._turn = turn[0] if turn else ""
        self.template_name = self._template.name
        self.supports_tools = self._template.prints_tools
        self._call_id = short if self._template.wants_short_ids else str

    def _variables(self, model: RendererModel) -> dict[str, Any]:
        """The names that templates expect; text, as transformers gives them."""
        named = {"bos_token": model.bos_id, "eos_token": model.eos_id}
        return {name: "" if token is None else self.token_bytes(token).decode() for name, token in named.items()}

    def _generation_prompt(self) -> str:
        """Only one that begins with a control token is a safe mark: nobody can write it into a message."""
        prompt = self._template.generation_prompt
        return prompt if self._tokens.controls.match(prompt) else ""

    def token_bytes(self, token: int) -> bytes:
        return self._tokens.bytes_of(token)

    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool] = (),
        *,
        partition: str = "",
        most: int | None = None,
    ) -> Rendered:
        """The ids of the prompt.

        partition   a tenant, which divides the memory of encoded pieces
        most        tokens that there is room for: a text that cannot be so few is refused before it is encoded, since
                    eight megabytes would take as many seconds
        Raises BadRequestError, also when the model's template refuses the messages, or cannot print tools.
        """
        if tools and not self.supports_tools:
            raise BadRequestError("This model's chat template has no tools.", param="tools", code="unsupported")
        mask = Mask(self._tokens.controls)
        try:
            shown_tools = [PrintedTool(mask.over(_tool(tool))) for tool in tools]
            shown = mask.over([self._message(message) for message in messages])
            text = self._template.render(shown, shown_tools or None)
        except RecursionError:
            raise BadRequestError("Arguments are nested too deeply.", param="messages", code="too_deep") from None
        if most is not None and self._tokens.least(len(mask.off(text))) > most:
            message = f"This model's context is {most} tokens; the rendered messages and tools take more than that."
            raise BadRequestError(message, param="messages", code="context_length_exceeded")
        system = shown[0]["content"] if shown and shown[0]["role"] == "system" else None
        stretches = outline(text, self._turn, self._opening, system, shown_tools)
        tokens, starts = self._encode(text, mask, partition, [*(s.start for s in stretches), _end(stretches)])
        return Rendered(tokens, _segments(stretches, starts, mask))

    def _encode(self, text: str, mask: Mask, partition: str, marks: list[int]) -> tuple["array[int]", list[int]]:
        """The ids of a text, and for each marked character (in order) the first id that begins there or behind.

        Cut behind every opening of an assistant's turn too. That is where generation began, so the ids of a prompt stay
        a prefix of the next turn's even when the reply starts with a space or a line break that would merge with the
        opening's.
        """
        tokens = array("I")
        places: list[int] = []
        at, follows = 0, Follows.NOTHING
        for stretch in _split_after(text, self._opening):
            for piece, is_control in self._tokens.cut(stretch):
                known = len(places)
                while known < len(marks) and marks[known] < at + len(piece):
                    known += 1
                inside = [mark - at for mark in marks[len(places) : known]]
                at += len(piece)
                if is_control:
                    places += [len(tokens)] * len(inside)
                    tokens.append(self._tokens.control(piece))
                else:
                    places += self._places(piece, inside, mask, partition, len(tokens), follows)
                    tokens.extend(self._tokens.encode(mask.off(piece), partition, follows))
                follows = Follows.CONTROL if is_control else Follows.TEXT
        return tokens, places + [len(tokens)] * (len(marks) - len(places))

    def _places(
        self, piece: str, inside: list[int], mask: Mask, partition: str, before: int, follows: Follows
    ) -> list[int]:
        """Of a piece's marked characters. The first one of a piece needs no search: nearly all of them are that."""
        if not any(inside):
            return [before] * len(inside)
        shown = [len(mask.off(piece[:mark])) for mark in inside]
        return [before + place for place in self._tokens.places(mask.off(piece), shown, partition, follows)]

    def _message(self, message: Message) -> dict[str, Any]:
        role = "system" if message.role == "developer" else message.role
        shown: dict[str, Any] = {"role": role, "content": message.text}
        if message.name:
            shown["name"] = message.name
        if message.tool_calls:
            shown["tool_calls"] = [self._call(call) for call in message.tool_calls]
        if message.tool_call_id:
            shown["tool_call_id"] = self._call_id(message.tool_call_id)
        return shown

    def _call(self, call: ToolCall) -> dict[str, Any]:
        arguments: Any = canonical(call.function.arguments)
        # Models' own templates print `arguments | tojson`, as transformers feeds them objects.
        if self._template.name != DECLARED and is_object(arguments):
            arguments = msgspec.json.decode(arguments)
        function = {"name": call.function.name, "arguments": arguments}
        return {"id": self._call_id(call.id), "type": "function", "function": function}


def _tool(tool: Tool) -> dict[str, Any]:
    """Always in this order, whatever the client's was; `strict` is the grammar's business."""
    described = {"description": tool.description} if tool.description else {}
    parameters = EMPTY_PARAMETERS if tool.parameters is None else tool.parameters
    return {"type": "function", "function": {"name": tool.name, **described, "parameters": parameters}}


def _segments(stretches: list[Stretch], starts: list[int], mask: Mask) -> tuple[Segment, ...]:
    """starts: of every stretch, and the end of the last."""
    return tuple(
        Segment(stretch.part, mask.off(stretch.text), start, stop - start, mask.off(stretch.name))
        for stretch, (start, stop) in zip(stretches, pairwise(starts), strict=True)
    )


def _end(stretches: list[Stretch]) -> int:
    return stretches[-1].end if stretches else 0


def _split_after(text: str, mark: str) -> list[str]:
    if not mark:
        return [text]
    *opened, last = text.split(mark)
    return [*(piece + mark for piece in opened), last]
