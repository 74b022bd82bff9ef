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
        ("halves", ctypes.c_long),
        ("wide", ctypes.c_long),
    ]


class Panels:
    """value = code * scale + minimum; the last panel is filled up with zeros.

    codes            [outputs, inputs]: uint8 from 0 to 15, or int8 of which the kernel then takes all 8 bits
    scale, minimum   float32 [outputs, inputs / size], size one of SIZES; no minimum where it is 0 throughout. They are
                     kept as float16 where that changes none of them
    wide             bits to which activations are rounded, with a scale for each group of inputs: 16, or 8 where codes
                     have 4
    """

    def __init__(self, codes: Tensor, scale: Tensor, minimum: Tensor | None, wide: int = 16) -> None:
        self.outputs, self.inputs = codes.shape
        groups = scale.shape[1]
        size = self.inputs // groups
        if size * groups != self.inputs or size not in SIZES:
            raise ValueError(f"{self.inputs} inputs in groups of {size}: the kernel takes groups of 16 or 32")
        bits = 4 if codes.dtype == torch.uint8 else 8
        wide = wide if bits == 4 else 16
        self.room = self.inputs * wide // 32 + 2 * groups  # numbers of 32 bits for the activations of a row
        self._codes = _in_vectors(codes, groups, bits)
        halves = all(part is None or _is_half(part) for part in (scale, minimum))
        self._scale = _in_panels(scale, halves=halves)
        self._minimum = None if minimum is None else _in_panels(minimum, halves=halves)
        self.panels = len(self._scale)
        self.matrix = _Matrix(
            self._codes.data_ptr(),
            self._scale.data_ptr(),
            None if self._minimum is None else self._minimum.data_ptr(),
            self.panels,
            groups,
            size,
            bits,
            halves,
            wide,
        )


def _is_half(factors: Tensor) -> bool:
    return torch.equal(factors.half().float(), factors)


def _in_panels(factors: Tensor, *, halves: bool) -> Tensor:
    """[outputs, groups] -> [panels, groups, 64]"""
    kept = _filled(factors).view(-1, PANEL, factors.shape[1]).transpose(1, 2).contiguous()
    return kept.half() if halves else kept


def _in_vectors(codes: Tensor, groups: int, bits: int) -> Tensor:
    """[outputs, inputs] -> [panels, groups, vectors, octets, outputs, inputs], as codes.c has them."""
    inputs = 32 // bits  # of each output, in a vector: four, or four and four behind them
    vectors = (
        _filled(codes).view(-1, 8, 8, groups, codes.shape[1] // groups // inputs, inputs).permute(0, 3, 4, 1, 2, 5)
    )
    if bits == 8:
        return vectors.contiguous()
    return (vectors[..., :4] | (vectors[..., 4:] << 4)).contiguous()


def _filled(rows: Tensor) -> Tensor:
    return torch.nn.functional.pad(rows, (0, 0, 0, -len(rows) % PANEL))
