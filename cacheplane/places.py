"""Where blocks lie in the columns of the index: the blocks of one chain one behind the other."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

DENSE: Final = 0.7  # of the places up to the highest; above it new blocks go behind, below it into gaps
GAP: Final = 16  # places left free behind a run, for what the same chain is given next
_AHEAD: Final = 64


class Places:
    """Free places of a column, by next fit.

    used     a column of which 0 means free; the caller writes it
    Aim      a run of blocks that are stored together lies together, and a chain that grows block by block goes
             on right behind its last one, so that a look-up reads memory in stretches instead of 2,000 single
             lines. Nothing but speed depends on it.
    Bound    the highest place stays below `room(n)` while at most n are taken at a time
    """

    def __init__(self, used: NDArray[np.uint32]) -> None:
        self._used = used
        self.taken = 0
        self.top = 1  # place 0 is nowhere
        self._hand = 1

    @staticmethod
    def room(blocks: int, at_once: int) -> int:
        """How long a column must be for so many blocks."""
        return int((blocks + at_once) / DENSE) + at_once + GAP + 2

    def take(self, count: int, behind: int) -> NDArray[np.uint32]:
        """`count` free places, right behind the place `behind` if there is one and it can be.

        In rising order, but that a sweep that gets to the top goes on from the bottom, below where it began.
        """
        start = behind + 1
        dense = self.taken + count > DENSE * self.top
        self.taken += count
        if behind and self._free(start, start + count):
            self.top = max(self.top, start + count)
        elif dense:
            start, self.top = self.top, self.top + count + GAP
        else:
            return self._sweep(count)
        return np.arange(start, start + count, dtype=np.uint32)

    def _free(self, start: int, stop: int) -> bool:
        """Whether nothing lies there; above the top nothing does."""
        if stop > len(self._used):
            return False
        return start >= self.top or not np.count_nonzero(self._used[start : min(stop, self.top)])

    def give_back(self, count: int) -> None:
        self.taken -= count

    def _sweep(self, count: int) -> NDArray[np.uint32]:
        """The next free places behind the last ones given. There are enough: the column is not dense."""
        found = []
        while count:
            if self._hand >= self.top:
                self._hand = 1
            stop = min(self._hand + 4 * count + _AHEAD, self.top)
            free = (self._used[self._hand : stop] == 0).nonzero()[0][:count] + self._hand
            count -= len(free)
            self._hand = int(free[-1]) + 1 if not count else stop
            found.append(free)
        return np.concatenate(found, dtype=np.uint32, casting="unsafe")
