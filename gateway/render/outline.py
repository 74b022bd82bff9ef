"""Which part of a rendered prompt is what: the system prompt, each tool, each message of the history."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from cacheplane.attribution import Part
from gateway.render.templates import PrintedTool

ROLE_CHARACTERS = 64
"""Within which a turn's text begins, behind what opens it and names its role."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Characters start .. end - 1 of the rendered text. `text` is what it is compared by, without separators."""

    part: Part
    start: int
    end: int
    text: str
    name: str = ""


def outline(text: str, opening: str, closing: str, system: str | None, tools: Sequence[PrintedTool]) -> list[Stretch]:
    """The stretches of a prompt, in order and without a gap, up to where the assistant's turn begins.

    opening   the control token that begins a turn; no client can write it (see `Mask`)
    closing   the generation prompt
    system    the text of the request's own system prompt, as rendered
    Never raises: a prompt whose turns cannot be told is one stretch of history, and tools that the template does not
    print as JSON behind the system prompt are part of that.
    """
    end = len(text) - len(closing) if text.endswith(closing) else len(text)
    starts = list(_starts(text, opening, end))
    if not starts:
        return [Stretch(Part.HISTORY, 0, end, text[:end])] if end else []
    bounds = [0, *starts[1:], end]
    stretches: list[Stretch] = []
    for start, stop in pairwise(bounds):
        leads = all(stretch.part is not Part.HISTORY for stretch in stretches)
        if leads and text.startswith("system", text.find(opening, start) + len(opening)):
            stretches += _system_turn(text, start, stop, system, [] if stretches else tools)
        else:
            stretches.append(Stretch(Part.HISTORY, start, stop, text[start:stop]))
    return stretches


def _starts(text: str, opening: str, end: int) -> Iterator[int]:
    at = text.find(opening) if opening else -1
    while 0 <= at < end:
        yield at
        at = text.find(opening, at + len(opening))


def _system_turn(
    text: str, start: int, end: int, system: str | None, tools: Sequence[PrintedTool]
) -> Iterator[Stretch]:
    """What the client wrote, the tools, and around them the template's own words."""
    at = start
    found = text.find(system, start, end) if system else -1
    if system and 0 <= found - start <= ROLE_CHARACTERS:
        at = found + len(system)
        yield Stretch(Part.SYSTEM, start, at, system)
    # Where the system prompt was not found, it is somewhere in the rest.
    rest = Part.SYSTEM if system and at == start else Part.FRAME
    if places := _places(text, at, end, tools):
        yield Stretch(rest, at, places[0], text[at : places[0]])
        at = places[-1] + len(tools[-1].json)
        for tool, (place, following) in zip(tools, pairwise([*places, at]), strict=True):
            yield Stretch(Part.TOOLS, place, following, tool.json, tool.name)
    if at < end:
        yield Stretch(rest, at, end, text[at:end])


def _places(text: str, start: int, end: int, tools: Sequence[PrintedTool]) -> list[int]:
    """Where each tool is printed, in order; none unless all are."""
    places = []
    for tool in tools:
        place = text.find(tool.json, start, end)
        if place < 0:
            return []
        places.append(place)
        start = place + len(tool.json)
    return places
