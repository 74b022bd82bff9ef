"""How long the gateway itself has kept a request, without the time that it waited for others."""

import time
from collections.abc import Callable


class Stopwatch:
    """Milliseconds of our own work: running from the start, except between `pause` and `resume`.

    The client sending its body and the worker computing are waited for. Everything else is overhead and counts:
    authentication, parsing, rendering, hashing, placing, turning frames into replies, and queueing for our event loop.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._started = clock()
        self._waited = 0.0
        self._paused_at: float | None = None

    def pause(self) -> None:
        """From here on somebody else is waited for. Does nothing when paused."""
        if self._paused_at is None:
            self._paused_at = self._clock()

    def resume(self) -> None:
        """What was waited for has come. Does nothing when running."""
        if self._paused_at is not None:
            self._waited += self._clock() - self._paused_at
            self._paused_at = None

    @property
    def own_ms(self) -> float:
        now = self._clock() if self._paused_at is None else self._paused_at
        return (now - self._started - self._waited) * 1000.0

    @property
    def total_ms(self) -> float:
        return (self._clock() - self._started) * 1000.0
