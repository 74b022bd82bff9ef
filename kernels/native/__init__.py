"""Kernels in C for the CPU: compiled once on the machine that runs them, and called without Python's lock.

owns            products with matrices of small codes, attention of single tokens over slots, what is done to each row;
                how the sources are compiled and loaded
does not own    when they are used: without a C compiler there are none, and torch does the same more slowly
front door      native, Native, SlotTask, Panels, LANES

Tensors are float32 and contiguous unless a signature says otherwise; nothing is checked again behind these doors.
"""

from kernels.native.library import LANES, Native, SlotTask, native
from kernels.native.panels import Panels

__all__ = ["LANES", "Native", "Panels", "SlotTask", "native"]
