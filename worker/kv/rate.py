"""How fast a tier copies, as measured."""

from typing import Final

_KEPT: Final = 0.9  # of the past at each new copy: the last twenty or so copies decide


class CopyRate:
    """A moving average over copies, each weighed by the time it took, so that one slow copy counts for what it cost."""

    def __init__(self) -> None:
        self._bytes = 0.0
        self._seconds = 0.0

    def observe(self, size: int, seconds: float) -> None:
        """One copy of `size` bytes."""
        self._bytes = _KEPT * self._bytes + size
        self._seconds = _KEPT * self._seconds + seconds

    @property
    def gbps(self) -> float:
        """10**9 bytes a second; 0 before the first copy."""
        return self._bytes / self._seconds / 1e9 if self._seconds else 0.0
