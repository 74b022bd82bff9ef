"""The compiled kernels as functions of tensors."""

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

import torch
from torch import Tensor

from kernels.native.compiler import load
from kernels.native.panels import PANEL, Panels

SLOT_TILE: Final = 128  # positions; TILE of slots.h
_TOGETHER: Final = 192  # ROWS of slots.h
LANES: Final = 8  # what dimensions of rows and heads must be a multiple of; halves of heads too, to be rotated

_POINTER, _LONG, _INT, _FLOAT = ctypes.c_void_p, ctypes.c_long, ctypes.c_int, ctypes.c_float
_SIGNATURES: Final = {
    "multiply": (_POINTER, _POINTER, _LONG, _POINTER, _POINTER, _LONG, _INT),
    "attend": (_POINTER, _INT),
    "place": (_POINTER, _POINTER, _LONG, _POINTER, _LONG),
    "norm": (_POINTER, _POINTER, _LONG, _LONG, _LONG, _FLOAT, _POINTER, _INT),
    "gate": (_POINTER, _LONG, _LONG, _POINTER, _INT),
    "rotate": (_POINTER, _LONG, _POINTER, _POINTER, _LONG, _LONG, _LONG, _POINTER, _INT),
    "layers": (_POINTER, _INT),
    "copy_blocks": (_POINTER, _POINTER, _LONG, _LONG, _LONG, _INT, _INT),
}


class Native:
    """Calls of the library, with as many threads as torch has."""

    def __init__(self, library: ctypes.CDLL) -> None:
        for name, arguments in _SIGNATURES.items():
            call = getattr(library, f"saltway_{name}")
            call.argtypes, call.restype = arguments, None
            setattr(self, f"_{name}", call)

    _multiply: Any
    _attend: Any
    _place: Any
    _norm: Any
    _gate: Any
    _rotate: Any
    _layers: Any
    _copy_blocks: Any

    def run_layers(self, step: ctypes.Structure) -> None:
        """See CodedLayers.run."""
        self._layers(ctypes.byref(step), torch.get_num_threads())

    def copy_blocks(self, store: ctypes.Structure, blocks: Sequence[int], slot: int, first: int, *, out: bool) -> None:
        """See SlotBlocks."""
        numbers, threads = (ctypes.c_int64 * len(blocks))(*blocks), torch.get_num_threads()
        self._copy_blocks(ctypes.byref(store), numbers, len(blocks), slot, first, out, threads)

    def multiply(self, x: Tensor, by: Panels) -> Tensor:
        """x [rows, inputs] -> [rows, outputs]. A row's result is the same bits alone and among others."""
        y, room = torch.empty(len(x), by.panels * PANEL), torch.empty(len(x) * by.room)
        into, threads = (y.data_ptr(), y.shape[1]), torch.get_num_threads()
        self._multiply(ctypes.byref(by.matrix), x.data_ptr(), len(x), room.data_ptr(), *into, threads)
        return y if by.outputs == y.shape[1] else y[:, : by.outputs].contiguous()

    def attend(self, task: "SlotTask", k: Tensor, v: Tensor) -> None:
        """See SlotTask.run."""
        self._place(ctypes.byref(task), k.data_ptr(), k.stride(0), v.data_ptr(), v.stride(0))
        self._attend(ctypes.byref(task), torch.get_num_threads())

    def norm(self, x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
        """x / √(mean of squares + epsilon) * weight [d] or [heads, d], over the last dimension, a multiple of LANES."""
        y = torch.empty_like(x)
        size, threads = x.shape[-1], torch.get_num_threads()
        rows, weights = x.numel() // size, weight.numel() // size
        self._norm(x.data_ptr(), weight.data_ptr(), rows, weights, size, epsilon, y.data_ptr(), threads)
        return y

    def gate(self, x: Tensor) -> Tensor:
        """x [rows, 2 * size], the gate before the rest, -> silu(gate) * rest [rows, size], size a multiple of LANES."""
        y = torch.empty(len(x), x.shape[1] // 2)
        self._gate(x.data_ptr(), len(x), y.shape[1], y.data_ptr(), torch.get_num_threads())
        return y

    def rotate(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """x [rows, heads, dim], whose rows may lie apart, by factors [rows, 1, dim] -> as much, contiguous; see Rotary.

        dim   a multiple of 2 * LANES
        """
        rows, heads, dim = x.shape
        y = torch.empty(rows, heads, dim)
        factors, threads = (cos.data_ptr(), sin.data_ptr()), torch.get_num_threads()
        self._rotate(x.data_ptr(), x.stride(0), *factors, rows, heads, dim, y.data_ptr(), threads)
        return y


class SlotTask(ctypes.Structure):
    """Attention of one forward pass over slots: `task` of attention.c.

    rows     slot, start and count of each sequence: its next tokens, at positions start .. start + count - 1, which
             follow those of the row before
    window   how many positions a token sees, its own included; None for all up to its own

    What a token gets is the same bits alone, in any chunk of its sequence and beside any others, by any number of
    threads: see slots.h.
    """

    _fields_ = [(name, _POINTER) for name in ("q", "keys", "values", "slot", "start", "first", "count", "mixed")] + [
        (name, _LONG)
        for name in ("stride", "pieces", "heads", "kv_heads", "head_dim", "context", "pitch", "window", "half")
    ]

    heads: int
    kv_heads: int

    def __init__(self, rows: Sequence[tuple[int, int, int]], window: int | None) -> None:
        super().__init__(window=window or 0)
        self._rows = rows

    def run(
        self, library: Native, q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor, mixed: Tensor
    ) -> None:
        """Writes each token's key and value into its slot, then mixes what each token sees there.

        q, k, v   [tokens, heads or kv heads, head_dim], whose tokens may lie apart; head_dim a multiple of LANES
        keys      [slots, kv heads, context / pitch, head_dim, pitch], the pitch a multiple of SLOT_TILE
        values    [slots, kv heads, context, head_dim]; both float32, or float16, whose largest number stands for all
                  beyond it
        mixed     [tokens, heads, head_dim], where the results go
        """
        self.q, self.stride, self.mixed = q.data_ptr(), q.stride(0), mixed.data_ptr()
        self.keys, self.values = keys.data_ptr(), values.data_ptr()
        self.fit(q.shape[1], keys)
        library.attend(self, k, v)

    def fit(self, heads: int, keys: Tensor) -> None:
        """Takes the dimensions of keys, and cuts rows into pieces."""
        _, self.kv_heads, tiles, self.head_dim, self.pitch = keys.shape
        self.context, self.half = tiles * self.pitch, keys.dtype == torch.float16
        if self.heads != heads:
            self.heads = heads
            self._cut(max(1, _TOGETHER * self.kv_heads // heads))

    def _cut(self, most: int) -> None:
        """Rows of many tokens into pieces of `most`."""
        pieces, first = [], 0
        for slot, start, count in self._rows:
            pieces += [(slot, start + at, first + at, min(most, count - at)) for at in range(0, count, most)]
            first += count
        self._columns = torch.tensor(pieces, dtype=torch.int64).T.contiguous()
        self.slot, self.start, self.first, self.count = (column.data_ptr() for column in self._columns)
        self.pieces = len(pieces)


@cache
def native() -> Native | None:
    """The kernels of this process, compiled when they are first asked for; None where they can't be."""
    library = load()
    return None if library is None else Native(library)
