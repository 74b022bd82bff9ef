"""How fast a worker computes, learned from the requests that we sent it, for engines that do not say."""

import math
from typing import Final

MIN_TOKENS: Final = 64  # of a prompt; below, the time to the first token says more about the way there
ENOUGH: Final = 3  # observations before they count
FADE: Final = 0.9  # of an observation for each later one


class PrefillRate:
    """Tokens per second, as a ratio of faded sums, so that a long prompt counts for more than a short one."""

    def __init__(self) -> None:
        self._tokens = self._seconds = 0.0
        self._observations = 0

    def observe(self, tokens: int, seconds: float) -> None:
        """A prompt of which `tokens` had to be computed was begun `seconds` before its first token."""
        if tokens < MIN_TOKENS or not (seconds > 0 and math.isfinite(seconds)):
            return
        self._tokens = FADE * self._tokens + tokens
        self._seconds = FADE * self._seconds + seconds
        self._observations += 1

    @property
    def tps(self) -> float:
        """0.0 until there is enough to go by."""
        return self._tokens / self._seconds if self._observations >= ENOUGH else 0.0
