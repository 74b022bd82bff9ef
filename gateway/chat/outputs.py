"""The JSON of a reply under a schema, kept until the reply is whole, for a second implementation to judge."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from gateway.chat.messages import EMPTY_PARAMETERS
from gateway.chat.request import ChatRequest
from gateway.schemas import check_output
from gateway.schemas.output import MAX_OUTPUT_CHARACTERS
from gateway.tools.hermes import CallArguments, CallStart, Event, Text


@dataclass(slots=True)
class _Said:
    """One choice: its text, and its calls as name and pieces of arguments."""

    text: list[str] = field(default_factory=list)
    calls: list[tuple[str, list[str]]] = field(default_factory=list)
    size: int = 0
    whole: bool = False


class Outputs:
    """What each choice of a reply said, where a schema was to hold it.

    Only choices that ended by themselves are judged: a limit or a stop string may cut JSON anywhere.
    """

    def __init__(self, request: ChatRequest) -> None:
        self._tools = {tool.name: tool.parameters or EMPTY_PARAMETERS for tool in request.callable_tools}
        self._answer = _answer_schema(request)
        held = bool(self._tools) or self._answer is not None
        self._choices = [_Said() for _ in range(request.n)] if held and not request.stop else []

    def add(self, index: int, events: Sequence[Event]) -> None:
        """What a choice goes on with; past the size that is judged nothing more is kept."""
        if not self._choices:
            return
        said = self._choices[index]
        for event in events:
            match event:
                case Text(text) if self._answer is not None:
                    _keep(said, said.text, text)
                case CallStart():
                    said.calls.append((event.name, []))
                case CallArguments(call, piece):
                    _keep(said, said.calls[call][1], piece)

    def end(self, index: int, *, whole: bool) -> None:
        """The choice is finished; `whole` unless it was cut."""
        if self._choices:
            self._choices[index].whole = whole

    @property
    def any(self) -> bool:
        """Whether there is something to judge."""
        return any(said.whole and (said.text or said.calls) for said in self._choices)

    def violations(self) -> list[str]:
        """The keyword that each output breaks, if it breaks one. CPU bound: call it off the event loop."""
        found = [check_output(schema, text) for schema, text in self._outputs()]
        return [violation.keyword for violation in found if violation is not None]

    def _outputs(self) -> list[tuple[dict[str, Any], str]]:
        outputs = []
        for said in self._choices:
            if not said.whole or said.size > MAX_OUTPUT_CHARACTERS:
                continue
            outputs += [(self._tools[name], "".join(pieces)) for name, pieces in said.calls if name in self._tools]
            if self._answer is not None and not said.calls:
                outputs.append((self._answer, "".join(said.text)))
        return outputs


def _answer_schema(request: ChatRequest) -> dict[str, Any] | None:
    wanted = request.response_format
    return {"type": "object"} if wanted.type == "json_object" else wanted.json_schema


def _keep(said: _Said, pieces: list[str], piece: str) -> None:
    said.size += len(piece)
    if said.size <= MAX_OUTPUT_CHARACTERS:
        pieces.append(piece)
