"""Buffers that own what is on its way to disk."""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Image: TypeAlias = NDArray[np.uint8]  # the bytes of one file


class Staging:
    """A fixed number of equal buffers, made when first needed and then used again.

    A copy is made into a buffer before the source's owner goes on, and the buffer is nobody else's until the copy has
    landed: in public engines other users' tokens came out where a host buffer was reused before its transfer ran.

    They are numpy arrays: a tensor made in inference mode could never be written outside it.
    """

    def __init__(self, buffers: int, size: int) -> None:
        self._size = size
        self._unmade = buffers
        self._idle: list[Image] = []
        self._lent: set[int] = set()

    @property
    def lent(self) -> int:
        """Buffers in use."""
        return len(self._lent)

    def take(self) -> Image | None:
        """A buffer with whatever it held before; None when all are in use."""
        if not self._idle and not self._unmade:
            return None
        if not self._idle:
            self._unmade -= 1
            self._idle.append(np.empty(self._size, np.uint8))
        buffer = self._idle.pop()
        self._lent.add(id(buffer))
        return buffer

    def give_back(self, buffer: Image) -> None:
        """RuntimeError unless the buffer is lent."""
        if id(buffer) not in self._lent:
            raise RuntimeError("a staging buffer was given back twice")
        self._lent.remove(id(buffer))
        self._idle.append(buffer)
