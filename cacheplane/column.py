"""Columns of the prefix index: reserved at full length, paid for only as far as they are touched."""

import mmap
import sys
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Kind = TypeVar("Kind", bound=np.generic)


def column(length: int, kind: type[Kind]) -> NDArray[Kind]:
    """Zeros, in memory pages of the usual size.

    NumPy asks for huge pages where the kernel has them. The first touch of one clears 2 MiB, and the event by which a
    table grows into it would take some milliseconds, for which look-ups wait.
    """
    if sys.platform != "linux":
        return np.zeros(length, kind)
    memory = mmap.mmap(-1, length * np.dtype(kind).itemsize, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(memory, kind)
