"""What a worker's frames say, for both ways of delivering it: events of each choice, finish reasons, usage."""

from collections.abc import Callable
from dataclasses import dataclass, field

from gateway.chat.completion import FinishReason, Logprob, PromptDetails, TopLogprob, Usage
from gateway.chat.outputs import Outputs
from gateway.chat.request import ChatRequest
from gateway.errors import UpstreamError
from gateway.frames import DeltaFrame, EndFrame, FinishFrame, Frame, StartFrame, TokenLogprob
from gateway.tools.hermes import CallStart, Event, HermesParser, Text, new_call_id

LEAST_LOGPROB = -9999.0
"""JSON has no minus infinity; OpenAI's stand-in for it."""

TokenBytes = Callable[[int], bytes]


@dataclass(slots=True)
class ChoiceReading:
    """One choice as far as it has come."""

    parser: HermesParser | None
    calls: list[CallStart] = field(default_factory=list)
    logprobs: list[Logprob] = field(default_factory=list)  # not delivered yet
    finish: FinishReason | None = None

    def feed(self, text: str) -> list[Event]:
        if self.parser is not None:
            return self._heard(self.parser.feed(text))
        return [Text(text)] if text else []

    def close(self, *, cut: bool) -> list[Event]:
        """cut   whether the model would have gone on"""
        return [] if self.parser is None else self._heard(self.parser.finish(cut=cut))

    def _heard(self, events: list[Event]) -> list[Event]:
        self.calls += [event for event in events if isinstance(event, CallStart)]
        return events


class Reading:
    """The state of one reply.

    request   what is answered
    usage     tokens so far; whole once the end frame has been read
    ended     whether it has
    outputs   what was said under a schema
    """

    def __init__(self, request: ChatRequest, token_bytes: TokenBytes, new_id: Callable[[], str] = new_call_id) -> None:
        self.request = request
        self.usage = Usage()
        self.ended = False
        self.outputs = Outputs(request)
        self._token_bytes = token_bytes
        self.choices = [ChoiceReading(_parser(request, new_id)) for _ in range(request.n)]

    def read(self, frame: DeltaFrame | FinishFrame) -> tuple[ChoiceReading, list[Event]]:
        """What a choice goes on with, or ends with. Raises UpstreamError for one that the worker gave up."""
        choice = self._choice(frame.index)
        events = self._delta(choice, frame) if isinstance(frame, DeltaFrame) else self._finish(choice, frame)
        self.outputs.add(frame.index, events)
        return choice, events

    def _delta(self, choice: ChoiceReading, frame: DeltaFrame) -> list[Event]:
        if self.request.logprobs and frame.logprobs:
            choice.logprobs.extend(self._logprob(entry) for entry in frame.logprobs)
        return choice.feed(frame.text)

    def _finish(self, choice: ChoiceReading, frame: FinishFrame) -> list[Event]:
        if frame.reason == "abort":
            raise UpstreamError(code="aborted")
        events = choice.close(cut=frame.reason != "stop" or frame.stop is not None)
        choice.finish = self._finish_reason(frame, bool(choice.calls))
        self.outputs.end(frame.index, whole=choice.finish != "length")
        return events

    def count(self, frame: Frame) -> None:
        """Take usage from whichever frame has it."""
        match frame:
            case StartFrame():
                self._set_usage(frame.prompt_tokens, self.usage.completion_tokens)
                self.usage.prompt_tokens_details = PromptDetails(frame.cached.total)
            case DeltaFrame():
                # A running count, for a stream that never gets to its end frame.
                self._set_usage(self.usage.prompt_tokens, self.usage.completion_tokens + len(frame.tokens))
            case EndFrame():
                self._set_usage(frame.prompt_tokens, frame.completion_tokens)
                self.ended = True

    def _set_usage(self, prompt: int, completion: int) -> None:
        self.usage.prompt_tokens = prompt
        self.usage.completion_tokens = completion
        self.usage.total_tokens = prompt + completion

    def _choice(self, index: int) -> ChoiceReading:
        if not 0 <= index < len(self.choices) or self.choices[index].finish is not None:
            raise UpstreamError
        return self.choices[index]

    def _finish_reason(self, frame: FinishFrame, calls: bool) -> FinishReason:
        """OpenAI says "stop" after a named call, and "tool_calls" after any other; a deadline cuts like a limit."""
        if frame.reason in ("length", "deadline"):
            return "length"
        return "tool_calls" if calls and self.request.tool_choice.mode != "named" else "stop"

    def _logprob(self, entry: TokenLogprob) -> Logprob:
        top = [self._alternative(token, logprob) for token, logprob in entry.top[: self.request.top_logprobs]]
        chosen = self._alternative(entry.token, entry.logprob)
        return Logprob(chosen.token, chosen.logprob, chosen.bytes, top)

    def _alternative(self, token: int, logprob: float) -> TopLogprob:
        spelled = self._token_bytes(token)
        return TopLogprob(spelled.decode(errors="replace"), max(logprob, LEAST_LOGPROB), list(spelled))


def _parser(request: ChatRequest, new_id: Callable[[], str]) -> HermesParser | None:
    if not request.may_call:
        return None
    mode = request.tool_choice.mode
    single = mode == "named" or not request.parallel_tool_calls
    return HermesParser(limit=1 if single else None, bound=mode in ("required", "named"), new_id=new_id)
