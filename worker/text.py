"""Text from tokens, as far as it is final: whole characters only, and nothing of a stop string."""

import codecs
from collections.abc import Sequence


class TextStream:
    """Turns the bytes of generated tokens into text that will not change any more.

    Bytes are held back while a character is not complete, and text while it could be the start of a stop string.
    `stopped` is the stop string that matched, once one did; text from it on is never given out.

    least   tokens in which no stop string ends; one that begins there may end behind them
    """

    def __init__(self, stops: Sequence[str] = (), least: int = 0) -> None:
        self._stops = tuple(stops)
        self._least = least
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._held = ""
        self.stopped: str | None = None

    def feed(self, raw: bytes) -> str:
        """The text that the bytes of one more token make final."""
        self._least -= 1
        return self._release(self._decoder.decode(raw))

    def finish(self) -> str:
        """What was held back, at the end of the reply; an incomplete character becomes U+FFFD."""
        if self.stopped is not None:
            return ""
        rest = self._release(self._decoder.decode(b"", final=True))
        if self.stopped is None:
            rest, self._held = rest + self._held, ""
        return rest

    def _release(self, new: str) -> str:
        if self.stopped is not None:
            return ""
        if not self._stops:
            return new
        text, known = self._held + new, len(self._held)  # what is known has been looked through, or was not to be
        ends = [(text.find(stop, max(0, known + 1 - len(stop))), stop) for stop in self._stops]
        found = [(at + len(stop), at, stop) for at, stop in ends if at >= 0]
        if found and self._least < 0:
            # The match that is complete first wins, and of two that end together the longer: the one rule that
            # gives the same text whatever pieces it comes in.
            _, at, self.stopped = min(found)
            self._held = ""
            return text[:at]
        keep = max((_overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of text that is a proper beginning of stop."""
    return next((size for size in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:size])), 0)
