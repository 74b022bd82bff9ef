"""The compiled kernels as functions of tensors."""

import ctypes
from functools import cache
from typing import Any, Final

import torch
from torch import Tensor

from kernels.native.compiler import load
from kernels.native.panels import PANEL, Panels

LANES: Final = 8  # what dimensions of rows and heads must be a multiple of; halves of heads too, to be rotated

_POINTER, _LONG, _INT, _FLOAT = ctypes.c_void_p, ctypes.c_long, ctypes.c_int, ctypes.c_float
_SIGNATURES: Final = {
    "multiply": (_POINTER, _POINTER, _LONG, _POINTER, _POINTER, _INT),
    "attend": (_POINTER, _INT),
    "place": (_POINTER, _POINTER, _LONG, _POINTER, _LONG),
    "norm": (_POINTER, _POINTER, _LONG, _LONG, _LONG, _FLOAT, _POINTER, _INT),
    "gate": (_POINTER, _LONG, _LONG, _POINTER, _INT),
    "rotate": (_POINTER, _LONG, _POINTER, _POINTER, _LONG, _LONG, _LONG, _POINTER, _INT),
    "layers": (_POINTER, _INT),
}


class _Task(ctypes.Structure):
    """`task` of attention.c."""

    _fields_ = [(name, _POINTER) for name in ("q", "keys", "values", "slot", "begin", "end", "mixed")] + [
        (name, _LONG) for name in ("tokens", "heads", "kv_heads", "head_dim", "context")
    ]


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

    def run_layers(self, step: ctypes.Structure) -> None:
        """See CodedLayers.run."""
        self._layers(ctypes.byref(step), torch.get_num_threads())

    def multiply(self, x: Tensor, by: Panels) -> Tensor:
        """x [rows, inputs] -> [rows, outputs]. A row's result is the same bits alone and among others."""
        y, room = torch.empty(len(x), by.panels * PANEL), torch.empty(len(x) * by.room)
        threads = torch.get_num_threads()
        self._multiply(ctypes.byref(by.matrix), x.data_ptr(), len(x), room.data_ptr(), y.data_ptr(), threads)
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
    """Attention of some tokens of one forward pass, each in a slot: `task` of attention.c.

    slot, begin, end   int64 [tokens]: each sees the positions begin .. end - 1 of its slot; the last is its own
    """

    _fields_ = [(name, _POINTER) for name in ("q", "keys", "values", "slot", "begin", "end", "mixed")] + [
        (name, _LONG) for name in ("stride", "tokens", "heads", "kv_heads", "head_dim", "context")
    ]

    def __init__(self, slot: Tensor, begin: Tensor, end: Tensor) -> None:
        super().__init__(slot=slot.data_ptr(), begin=begin.data_ptr(), end=end.data_ptr(), tokens=len(slot))
        self._held = slot, begin, end  # the structure has their addresses alone

    def run(
        self, library: Native, q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor, mixed: Tensor
    ) -> None:
        """Writes each token's key and value into its slot, then mixes what each token sees there.

        q, k, v   [tokens, heads or kv heads, head_dim], whose tokens may lie apart; head_dim a multiple of LANES
        keys      [slots, kv heads, head_dim, context]
        values    [slots, kv heads, context, head_dim]
        mixed     [tokens, heads, head_dim], where the results go
        """
        self.q, self.stride, self.mixed = q.data_ptr(), q.stride(0), mixed.data_ptr()
        self.keys, self.values = keys.data_ptr(), values.data_ptr()
        self.fit(q.shape[1], keys)
        library.attend(self, k, v)

    def fit(self, heads: int, keys: Tensor) -> None:
        """Takes the dimensions of keys [slots, kv heads, head_dim, context]."""
        self.heads, self.kv_heads, self.head_dim, self.context = heads, *keys.shape[1:]


@cache
def native() -> Native | None:
    """The kernels of this process, compiled when they are first asked for; None where they can't be."""
    library = load()
    return None if library is None else Native(library)
