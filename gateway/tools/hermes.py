"""The Hermes tool format: `<tool_call>`, a JSON object with name and arguments, `</tool_call>`.

Read incrementally: argument text is passed on as it comes, everything else only when it is certain what it is. However
the text is cut into pieces, the events join to the same calls and the same text.
"""

import re
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum, auto

import msgspec

OPEN = "<tool_call>"
CLOSE = "</tool_call>"
MAX_HEAD = 512
"""Characters within which a call must name its function for its arguments to be streamed."""

_HEAD = re.compile(r'\s*\{\s*"name"\s*:\s*(?P<name>"(?:[^"\\]|\\.)*")\s*,\s*"arguments"\s*:\s*(?=\S)')
_OUTSIDE = re.compile(r'["{}\[\]]')
_INSIDE = re.compile(r'["\\]')


@dataclass(frozen=True, slots=True)
class Text:
    text: str


@dataclass(frozen=True, slots=True)
class CallStart:
    """`index` counts calls from 0 in the order in which they are made."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    index: int
    piece: str


@dataclass(frozen=True, slots=True)
class CallEnd:
    index: int


Event = Text | CallStart | CallArguments | CallEnd


class _Whole(msgspec.Struct):
    """A call that can only be read at once: other key order, or arguments that are not an object."""

    name: str
    arguments: msgspec.Raw = msgspec.Raw(b"{}")


class _At(Enum):
    TEXT = auto()
    HEAD = auto()  # after the opener, until the arguments begin
    WHOLE = auto()  # after the opener, until the closer
    ARGUMENTS = auto()
    TAIL = auto()  # after the arguments, until the closer


def new_call_id() -> str:
    return f"call_{secrets.token_hex(12)}"


class HermesParser:
    """Events of one generation. Feed it text, then finish it once.

    limit    calls to report at most; anything that follows them is dropped
    bound    the grammar lets nothing but calls be generated
    """

    def __init__(
        self, *, limit: int | None = None, bound: bool = False, new_id: Callable[[], str] = new_call_id
    ) -> None:
        self._limit = limit
        self._bound = bound
        self._new_id = new_id
        self._at = _At.TEXT
        self._buffer = ""
        self._scanned = 0  # of the buffer, in WHOLE
        self._lead = ""  # whitespace before the opener, text again if the call is none
        self._calls = 0
        self._between = False  # nothing but space since the last call
        self._depth = 0
        self._in_string = False
        self._escaped = False

    def feed(self, text: str) -> list[Event]:
        self._buffer += text
        return list(self._run())

    def finish(self, *, cut: bool = False) -> list[Event]:
        """The generation is over: what was held back is text, and a call that is open stays as far as it came.

        cut   a limit has ended it: then a call that has not come to its arguments is neither, and nothing is said of
              it, nor of an opener that was begun where nothing else may come, first or behind a call
        """
        events = list(self._run())
        rest, self._buffer = self._buffer, ""
        if self._at in (_At.ARGUMENTS, _At.TAIL):
            events.extend(self._end())
        elif self._at is not _At.TEXT:
            events.extend([] if cut else self._text(self._lead + OPEN + rest))
        elif not (self._between and rest.isspace()) and not (cut and self._opens(rest)):
            events.extend(self._text(rest))
        self._at = _At.TEXT
        return events

    def _opens(self, rest: str) -> bool:
        """Whether `rest` can only be the beginning of an opener."""
        return (self._bound or self._between) and _is_layout(rest)

    def _run(self) -> Iterator[Event]:
        """Advance until a state needs more text."""
        while self._buffer:
            before = (self._at, len(self._buffer))
            yield from self._step()
            if before == (self._at, len(self._buffer)):
                return

    def _step(self) -> Iterator[Event]:
        match self._at:
            case _At.TEXT:
                return self._in_text()
            case _At.HEAD:
                return self._in_head()
            case _At.WHOLE:
                return self._in_whole()
            case _At.ARGUMENTS:
                return self._in_arguments()
            case _At.TAIL:
                return self._in_tail()

    def _text(self, text: str) -> Iterator[Event]:
        if not text:
            return
        self._between = False
        if not self._full:
            yield Text(text)

    @property
    def _full(self) -> bool:
        return self._limit is not None and self._calls >= self._limit

    def _in_text(self) -> Iterator[Event]:
        found = self._buffer.find(OPEN)
        if found >= 0:
            text, self._buffer = self._buffer[:found], self._buffer[found + len(OPEN) :]
            # Between two calls any space is layout; elsewhere one line break is.
            self._lead = text if self._between and text.isspace() else "\n" * text.endswith("\n")
            self._at, self._scanned = _At.HEAD, 0
            yield from self._text(text.removesuffix(self._lead))
        elif not (self._between and _is_layout(self._buffer)):
            ready = len(self._buffer) - _held(self._buffer)
            text, self._buffer = self._buffer[:ready], self._buffer[ready:]
            yield from self._text(text)

    def _in_head(self) -> Iterator[Event]:
        match = _HEAD.match(self._buffer)
        if match is None:
            if len(self._buffer) > MAX_HEAD or CLOSE in self._buffer:
                self._at = _At.WHOLE
            return
        name = _decoded_name(match["name"])
        streams = self._buffer[match.end()] == "{" and CLOSE not in match[0]
        if match.end() > MAX_HEAD or name is None or not streams:
            self._at = _At.WHOLE
            return
        self._buffer = self._buffer[match.end() :]
        self._at, self._depth, self._in_string, self._escaped = _At.ARGUMENTS, 0, False, False
        yield from self._start(name)

    def _start(self, name: str) -> Iterator[Event]:
        self._calls += 1
        self._between = True
        if self._limit is None or self._calls <= self._limit:
            yield CallStart(self._calls - 1, self._new_id(), name)

    def _in_whole(self) -> Iterator[Event]:
        found = self._buffer.find(CLOSE, max(0, self._scanned - len(CLOSE)))
        if found < 0:
            self._scanned = len(self._buffer)
            return
        body, self._buffer = self._buffer[:found], self._buffer[found + len(CLOSE) :]
        self._at = _At.TEXT
        try:
            call = msgspec.json.decode(body, type=_Whole)
        except (msgspec.MsgspecError, RecursionError):
            yield from self._text(self._lead + OPEN + body + CLOSE)
            return
        yield from self._start(call.name)
        yield from self._piece(_as_text(call.arguments))
        yield from self._end()

    def _in_arguments(self) -> Iterator[Event]:
        end = self._end_of_value()
        piece, self._buffer = self._buffer[:end], self._buffer[end:]
        if self._depth == 0:
            self._at = _At.TAIL
        yield from self._piece(piece)

    def _piece(self, piece: str) -> Iterator[Event]:
        if piece and (self._limit is None or self._calls <= self._limit):
            yield CallArguments(self._calls - 1, piece)

    def _end(self) -> Iterator[Event]:
        if self._limit is None or self._calls <= self._limit:
            yield CallEnd(self._calls - 1)

    def _end_of_value(self) -> int:
        """How much of the buffer belongs to the arguments; `_depth` is 0 after their last brace."""
        at = 0
        while at < len(self._buffer):
            if self._escaped:
                self._escaped, at = False, at + 1
                continue
            match = (_INSIDE if self._in_string else _OUTSIDE).search(self._buffer, at)
            if match is None:
                break
            at = match.end()
            self._turn(match[0])
            if self._depth == 0 and not self._in_string:
                return at
        return len(self._buffer)

    def _turn(self, mark: str) -> None:
        if mark == '"':
            self._in_string = not self._in_string
        elif mark == "\\":
            self._escaped = True
        else:
            self._depth += 1 if mark in "{[" else -1

    def _in_tail(self) -> Iterator[Event]:
        found = self._buffer.find(CLOSE)
        if found < 0:
            self._buffer = self._buffer[-(len(CLOSE) - 1) :]
            return
        self._buffer = self._buffer[found + len(CLOSE) :]
        self._at = _At.TEXT
        yield from self._end()


def _held(text: str) -> int:
    """The length of the longest end of `text` that may be the beginning of a line break and an opener."""
    for size in range(min(len(text), len(OPEN)), 0, -1):
        end = text[-size:]
        if OPEN.startswith(end) or ("\n" + OPEN).startswith(end):
            return size
    return 0


def _is_layout(text: str) -> bool:
    """Whether `text` may still turn out to be only the space between two calls."""
    return OPEN.startswith(text.lstrip())


def _decoded_name(quoted: str) -> str | None:
    try:
        return msgspec.json.decode(quoted, type=str)
    except msgspec.MsgspecError:
        return None


def _as_text(arguments: msgspec.Raw) -> str:
    """The arguments as their own JSON text; some models wrap that text into a string."""
    raw = bytes(arguments)
    return msgspec.json.decode(raw, type=str) if raw.startswith(b'"') else raw.decode()
