"""Text from tokens, as far as it is final: whole characters only, and nothing of a stop string."""

import codecs
from collections.abc import Sequence


class TextStream:
    """Turns the bytes of generated tokens into text that will not change any more.

    Bytes are held back while a character is not complete, and text while it could be the start of a stop string.
    `stopped` is the stop string that matched, once one did; text from it on is never given out.
    """

    def __init__(self, stops: Sequence[str] = ()) -> None:
        self._stops = tuple(stops)
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._held = ""
        self.stopped: str | None = None

    def feed(self, raw: bytes) -> str:
        """The text that these bytes make final."""
        return self._release(self._held + self._decoder.decode(raw))

    def finish(self) -> str:
        """What was held back, at the end of the reply; an incomplete character becomes U+FFFD."""
        if self.stopped is not None:
            return ""
        rest = self._release(self._held + self._decoder.decode(b"", final=True))
        if self.stopped is None:
            rest, self._held = rest + self._held, ""
        return rest

    def _release(self, text: str) -> str:
        if self.stopped is not None:
            return ""
        if not self._stops:
            return text
        found = [(at + len(stop), at, stop) for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
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
