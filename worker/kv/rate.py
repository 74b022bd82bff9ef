"""How fast a tier copies, as measured."""

from typing import Final

_KEPT: Final = 0.9  # of the past at each new copy: the last twenty or so copies decide
_TRUSTED: Final = 64  # times that a copy is not made for its slowness before it is to be measured anew


class CopyRate:
    """A moving average over copies, each weighed by the time it took, so that one slow copy counts for what it cost.

    A rate for which copies are not made would stay what it is for ever: one stall of a disk, and the tier would be of
    no use again. So it is worth a few copies to measure it anew after a while, and what was before counts no more then.
    """

    def __init__(self) -> None:
        self._bytes = 0.0
        self._seconds = 0.0
        self._avoided = _TRUSTED

    @property
    def is_stale(self) -> bool:
        """Whether it was never measured, or not for long."""
        return self._avoided >= _TRUSTED

    def avoid(self) -> None:
        """A copy was not made because of this rate."""
        self._avoided += 1

    def observe(self, size: int, seconds: float) -> None:
        """One copy of `size` bytes."""
        if self.is_stale:
            self._bytes = self._seconds = 0.0
        self._avoided = 0
        self._bytes = _KEPT * self._bytes + size
        self._seconds = _KEPT * self._seconds + seconds

    @property
    def gbps(self) -> float:
        """10**9 bytes a second; 0 before the first copy. Others look while the loader's thread measures."""
        seconds = self._seconds
        return self._bytes / seconds / 1e9 if seconds else 0.0
