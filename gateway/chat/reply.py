"""A worker's frames as OpenAI's reply: server-sent events, or one JSON object. Folding the first gives the second."""

from dataclasses import dataclass, field

import msgspec

from gateway.chat.completion import (
    Call,
    CallDelta,
    CalledFunction,
    Choice,
    Chunk,
    ChunkChoice,
    Completion,
    Delta,
    FinishReason,
    Logprob,
    Logprobs,
    ReplyMessage,
    Usage,
)
from gateway.chat.outputs import Outputs
from gateway.chat.reading import ChoiceReading, Reading
from gateway.errors import DONE, ApiError, UpstreamError, from_worker, last_events
from gateway.frames import DeltaFrame, EndFrame, ErrorFrame, FinishFrame, Frame
from gateway.reuse import Reuse
from gateway.tools.hermes import CallArguments, CallStart, Event, Text

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyHead:
    """What is the same in every frame of a reply. `created` is in Unix seconds; `model` is the name asked for."""

    id: str
    model: str
    created: int


class _Chat:
    """What both forms of a reply begin with: frames are read in the same way."""

    def __init__(self, reading: Reading, head: ReplyHead) -> None:
        self._reading = reading
        self._head = head

    @property
    def usage(self) -> Usage:
        return self._reading.usage

    @property
    def finish_reasons(self) -> list[FinishReason | None]:
        return [choice.finish for choice in self._reading.choices]

    @property
    def calls(self) -> list[list[CallStart]]:
        """The calls of each choice that a client can answer; none where a limit has cut the reply."""
        return [[] if choice.finish == "length" else choice.calls for choice in self._reading.choices]

    @property
    def outputs(self) -> Outputs:
        return self._reading.outputs

    def explain(self, reuse: Reuse) -> None:
        """Say in the usage what could have been reused, and why the rest was not."""
        self._reading.usage.saltway = reuse


class ChatStream(_Chat):
    """The bytes of a stream, in OpenAI's order: for each choice the role, then deltas, then one finish reason; the
    usage frame when it was asked for; [DONE] once, last.

    Nothing is sent before a choice has something to say, so a request can move to another worker until then.
    """

    def __init__(self, reading: Reading, head: ReplyHead) -> None:
        super().__init__(reading, head)
        self._spoken: set[int] = set()
        self._text_frames = [_TextFrame(head, index) for index in range(reading.request.n)]
        self.closed = False

    def feed(self, frame: Frame) -> bytes:
        """What `frame` adds to the stream, possibly nothing. After the stream has closed, always nothing."""
        if self.closed:
            return b""
        try:
            self._reading.count(frame)
            return self._frames_of(frame)
        except UpstreamError as error:
            return self.fail(error)

    def fail(self, error: ApiError) -> bytes:
        """End the stream with an error."""
        if self.closed:
            return b""
        self.closed = True
        return last_events(error)

    def _frames_of(self, frame: Frame) -> bytes:
        match frame:
            case DeltaFrame() | FinishFrame():
                choice, events = self._reading.read(frame)
                said = self._events(frame.index, choice, events)
                return said if choice.finish is None else said + self._finish(frame.index, choice)
            case EndFrame():
                return self._end()
            case ErrorFrame():
                return self.fail(from_worker(frame.code, frame.message))
        return b""

    def _events(self, index: int, choice: ChoiceReading, events: list[Event]) -> bytes:
        written = b"".join(self._event(index, choice, event) for event in events)
        return self._role(index) + written if written else b""

    def _event(self, index: int, choice: ChoiceReading, event: Event) -> bytes:
        match event:
            case Text(text) if not choice.logprobs:
                return self._text_frames[index].of(text)
            case Text(text):
                return self._chunk(index, Delta(content=text), choice)
            case CallStart(call, name=name):
                function = CalledFunction("", name)
                return self._chunk(index, Delta(tool_calls=[CallDelta(call, function, event.id, "function")]), choice)
            case CallArguments(call, piece):
                return self._chunk(index, Delta(tool_calls=[CallDelta(call, CalledFunction(piece))]), choice)
        return b""

    def _role(self, index: int) -> bytes:
        if index in self._spoken:
            return b""
        self._spoken.add(index)
        return self._write(ChunkChoice(index, Delta(role="assistant", content="")))

    def _finish(self, index: int, choice: ChoiceReading) -> bytes:
        return self._role(index) + self._chunk(index, Delta(), choice)

    def _end(self) -> bytes:
        if any(choice.finish is None for choice in self._reading.choices):
            raise UpstreamError
        self.closed = True
        return self._usage() + DONE

    def _usage(self) -> bytes:
        return self._write_chunk([], self._reading.usage) if self._reading.request.stream_options.include_usage else b""

    def _chunk(self, index: int, delta: Delta, choice: ChoiceReading) -> bytes:
        """A frame of one choice; log probabilities that wait go along with whatever is next."""
        waiting = Logprobs(choice.logprobs) if choice.logprobs else None
        choice.logprobs = []
        return self._write(ChunkChoice(index, delta, waiting, choice.finish if delta == Delta() else None))

    def _write(self, choice: ChunkChoice) -> bytes:
        return self._write_chunk([choice])

    def _write_chunk(self, choices: list[ChunkChoice], usage: Usage | msgspec.UnsetType = msgspec.UNSET) -> bytes:
        head = self._head
        return _sse(_encode(Chunk(head.id, "chat.completion.chunk", head.created, head.model, choices, usage)))


class _TextFrame:
    """The frame of a plain text delta, encoded around a hole: nearly all frames are one."""

    _HOLE = "saltway-hole"

    def __init__(self, head: ReplyHead, index: int) -> None:
        choice = ChunkChoice(index, Delta(content=self._HOLE))
        frame = _sse(_encode(Chunk(head.id, "chat.completion.chunk", head.created, head.model, [choice])))
        # The last occurrence: a model may be named like the hole.
        self._before, self._after = frame.rsplit(_encode(self._HOLE), 1)

    def of(self, text: str) -> bytes:
        return self._before + _encode(text) + self._after


@dataclass(slots=True)
class _Gathered:
    """One choice of a plain reply."""

    text: list[str] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    arguments: list[list[str]] = field(default_factory=list)
    logprobs: list[Logprob] = field(default_factory=list)

    def add(self, events: list[Event], logprobs: list[Logprob]) -> None:
        self.logprobs += logprobs
        for event in events:
            match event:
                case Text(text):
                    self.text.append(text)
                case CallStart():
                    self.calls.append(Call(event.id, "function", CalledFunction("", event.name)))
                    self.arguments.append([])
                case CallArguments(call, piece):
                    self.arguments[call].append(piece)

    def message(self) -> ReplyMessage:
        text = "".join(self.text)
        if not self.calls:
            return ReplyMessage("assistant", text)
        for call, pieces in zip(self.calls, self.arguments, strict=True):
            call.function.arguments = "".join(pieces)
        return ReplyMessage("assistant", text or None, tool_calls=self.calls)


class ChatCollector(_Chat):
    """The plain reply: feed it every frame, then take the reply."""

    def __init__(self, reading: Reading, head: ReplyHead) -> None:
        super().__init__(reading, head)
        self._gathered = [_Gathered() for _ in range(reading.request.n)]

    def feed(self, frame: Frame) -> None:
        """Raises ApiError when the worker gives up."""
        self._reading.count(frame)
        match frame:
            case DeltaFrame() | FinishFrame():
                choice, events = self._reading.read(frame)
                self._gathered[frame.index].add(events, choice.logprobs)
                choice.logprobs = []
            case ErrorFrame():
                raise from_worker(frame.code, frame.message)

    def reply(self) -> bytes:
        """The reply as JSON. Raises UpstreamError when the frames did not come to their end."""
        if not self._reading.ended:
            raise UpstreamError
        choices = [self._choice(index) for index in range(self._reading.request.n)]
        head = self._head
        return _encode(Completion(head.id, "chat.completion", head.created, head.model, choices, self.usage))

    def _choice(self, index: int) -> Choice:
        finish, gathered = self._reading.choices[index].finish, self._gathered[index]
        if finish is None:
            raise UpstreamError
        logprobs = Logprobs(gathered.logprobs) if self._reading.request.logprobs else None
        return Choice(index, gathered.message(), logprobs, finish)


def _sse(data: bytes) -> bytes:
    return b"data: " + data + b"\n\n"
