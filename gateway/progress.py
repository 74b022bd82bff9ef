"""How far the answer to a call has come, so that another worker can go on with it."""

from collections.abc import Iterable

from gateway.frames import DeltaFrame, FinishFrame, Frame
from gateway.worker_wire import Accepted


class Progress:
    """Tokens and ends of all choices that have been passed on to the client's reply.

    begun   anything has been; then the next worker goes on behind it instead of beginning again
    """

    def __init__(self, choices: int) -> None:
        self.begun = False
        self._choices = [Accepted([]) for _ in range(choices)]

    @property
    def completion_tokens(self) -> int:
        return sum(len(choice.tokens) for choice in self._choices)

    @property
    def accepted(self) -> list[Accepted]:
        """For a worker: what each choice has got, or nothing for an answer that has not begun."""
        return self._choices if self.begun else []

    @property
    def replies(self) -> list[list[int]]:
        return [choice.tokens for choice in self._choices]

    def take(self, frames: Iterable[Frame]) -> None:
        """These frames are part of the reply now."""
        for frame in frames:
            match frame:
                case DeltaFrame():
                    self.begun = True
                    self._choices[frame.index].tokens.extend(frame.tokens)
                case FinishFrame():
                    self.begun = True
                    self._choices[frame.index].finished = True
