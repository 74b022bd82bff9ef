"""Kernels in C for the CPU: compiled once on the machine that runs them, and called without Python's lock.

owns            products with matrices of small codes, attention over slots, what is done to each row,
                and all of it for all layers in one call; copies of blocks into slots and out of them;
                how the sources are compiled and loaded
does not own    when they are used: without a C compiler there are none, and torch does the same more slowly
front door      native, Native, SlotTask, SlotBlocks, Panels, CodedLayers with CodedLayer, CodedLinear and SlotTasks,
                LANES, SLOT_TILE

Tensors are float32 and contiguous unless a signature says otherwise; nothing is checked again behind these doors.
"""

from kernels.native.blocks import SlotBlocks
from kernels.native.layers import CodedLayer, CodedLayers, CodedLinear, SlotTasks
from kernels.native.library import LANES, SLOT_TILE, Native, SlotTask, native
from kernels.native.panels import Panels

__all__ = [
    "LANES",
    "SLOT_TILE",
    "CodedLayer",
    "CodedLayers",
    "CodedLinear",
    "Native",
    "Panels",
    "SlotBlocks",
    "SlotTask",
    "SlotTasks",
    "native",
]
