"""A matrix of small codes, in the order in which the C kernel reads it."""

import ctypes

import torch
from torch import Tensor

PANEL = 64  # outputs; see codes.c
SIZES = (16, 32)  # inputs that may share a scale


class _Matrix(ctypes.Structure):
    """`matrix` of codes.c."""

    _fields_ = [
        ("codes", ctypes.c_void_p),
        ("scale", ctypes.c_void_p),
        ("minimum", ctypes.c_void_p),
        ("panels", ctypes.c_long),
        ("groups", ctypes.c_long),
        ("size", ctypes.c_long),
        ("bits", ctypes.c_long),
    ]


class Panels:
    """value = code * scale + minimum; the last panel is filled up with zeros.

    codes            [outputs, inputs]: uint8 from 0 to 15, or int8 of which the kernel then takes all 8 bits
    scale, minimum   float32 [outputs, inputs / size], size one of SIZES; no minimum where it is 0 throughout
    """

    def __init__(self, codes: Tensor, scale: Tensor, minimum: Tensor | None) -> None:
        self.outputs, self.inputs = codes.shape
        groups = scale.shape[1]
        size = self.inputs // groups
        if size * groups != self.inputs or size not in SIZES:
            raise ValueError(f"{self.inputs} inputs in groups of {size}: the kernel takes groups of 16 or 32")
        bits = 4 if codes.dtype == torch.uint8 else 8
        self._codes = _in_panels(codes, groups)
        if bits == 4:
            self._codes = self._codes[:, :, 0::2] | (self._codes[:, :, 1::2] << 4)
        self._scale = _in_panels(scale, groups)
        self._minimum = None if minimum is None else _in_panels(minimum, groups)
        self.panels = len(self._scale)
        self.matrix = _Matrix(
            self._codes.data_ptr(),
            self._scale.data_ptr(),
            None if self._minimum is None else self._minimum.data_ptr(),
            self.panels,
            groups,
            size,
            bits,
        )


def _in_panels(rows: Tensor, groups: int) -> Tensor:
    """[outputs, groups * n] -> [panels, groups, n, 64]"""
    outputs = len(rows)
    filled = torch.nn.functional.pad(rows, (0, 0, 0, -outputs % PANEL))
    return filled.view(-1, PANEL, groups, filled.shape[1] // groups).permute(0, 2, 3, 1).contiguous()
