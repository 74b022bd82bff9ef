"""All layers of a decoder as one call."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from kernels.native.library import LANES, Native, SlotTask
from kernels.native.panels import PANEL, Panels

PARTS: Final = 3  # of layers.c
_POINTER, _LONG = ctypes.c_void_p, ctypes.c_long


@dataclass(frozen=True, slots=True)
class CodedLinear:
    """y = x · Wᵀ + b of float32 activations, W by its codes, or by those of up to PARTS matrices whose outputs lie side
    by side, as where a file has values in more bits than queries and keys."""

    parts: tuple[Panels, ...]
    bias: Tensor | None

    @property
    def is_known(self) -> bool:
        """Whether the kernels in one call take it."""
        return len(self.parts) <= PARTS and all(part.outputs == part.panels * PANEL for part in self.parts)


@dataclass(frozen=True, slots=True)
class CodedLayer:
    """One decoder layer; qk_norm [heads + kv heads, head_dim], or None. All weights of norms are float32."""

    attention_norm: Tensor
    qkv: CodedLinear
    qk_norm: Tensor | None
    output: CodedLinear
    ffn_norm: Tensor
    gate_up: CodedLinear
    down: CodedLinear

    @property
    def linears(self) -> tuple[CodedLinear, ...]:
        return self.qkv, self.output, self.gate_up, self.down


@dataclass(frozen=True, slots=True)
class SlotTasks:
    """Attention of a whole forward pass.

    keys, values   of all layers, as SlotTask has those of one
    of_layers      for each layer what its tokens see
    """

    keys: Tensor
    values: Tensor
    of_layers: Sequence[SlotTask]


class _Linear(ctypes.Structure):
    """`linear` of layers.c."""

    _fields_ = [("parts", _POINTER * PARTS), ("bias", _POINTER)]


class _Layer(ctypes.Structure):
    """`layer` of layers.c."""

    _fields_ = [(name, _POINTER) for name in ("attention_norm", "ffn_norm", "qk_norm")] + [
        (name, _Linear) for name in ("qkv", "output", "gate_up", "down")
    ]


class _Pass(ctypes.Structure):
    """`pass` of layers.c."""

    _fields_ = (
        [(name, _POINTER) for name in ("layers", "tasks", "keys", "values")]
        + [(name, _LONG) for name in ("keys_apart", "values_apart")]
        + [
            (name, _POINTER)
            for name in ("cos", "sin", "x", "normed", "qkv", "rotated", "mixed", "gate_up", "gated", "room")
        ]
        + [(name, _LONG) for name in ("count", "rows", "width", "heads", "kv_heads", "head_dim", "hidden")]
        + [("epsilon", ctypes.c_float)]
    )


class CodedLayers:
    """The layers of a decoder whose matrices are all kept as codes.

    What `run` computes is, bit by bit, what the same kernels give when each is called by itself; but Python is asked
    for nothing between them, neither for time nor for its lock.

    heads, kv_heads, head_dim   dimensions
    epsilon                     of every norm
    """

    def __init__(
        self, library: Native, layers: Sequence[CodedLayer], heads: int, kv_heads: int, head_dim: int, epsilon: float
    ) -> None:
        self._library, self._held = library, layers  # the structures have their addresses alone
        self._layers = (_Layer * len(layers))(*map(_layer, layers))
        self._width, self._hidden = layers[0].attention_norm.numel(), layers[0].down.parts[0].inputs
        self._room = max(part.room for layer in layers for one in layer.linears for part in one.parts)
        self._heads, self._kv_heads, self._head_dim, self._epsilon = heads, kv_heads, head_dim, epsilon

    @staticmethod
    def takes(layers: Sequence[CodedLayer], head_dim: int) -> bool:
        """Whether the kernels know layers of these sizes."""
        return head_dim % (2 * LANES) == 0 and all(one.is_known for layer in layers for one in layer.linears)

    def run(self, x: Tensor, cos: Tensor, sin: Tensor, tasks: SlotTasks) -> None:
        """x [rows, width] becomes what the last layer gives; the rows' KV is written into their slots.

        cos, sin   [rows, 1, head_dim]; see Rotary
        """
        between = self._between(len(x))
        seen = self._seen(tasks)
        step = _Pass(
            ctypes.addressof(self._layers),
            ctypes.addressof(seen),
            *(kv.data_ptr() for kv in (tasks.keys, tasks.values)),
            *(kv.stride(0) * kv.element_size() for kv in (tasks.keys, tasks.values)),
            *(tensor.data_ptr() for tensor in (cos, sin, x, *between)),
            len(self._layers),
            len(x),
            self._width,
            self._heads,
            self._kv_heads,
            self._head_dim,
            self._hidden,
            self._epsilon,
        )
        self._library.run_layers(step)

    def _between(self, rows: int) -> list[Tensor]:
        """Where the kernels of so many rows put what they give each other: from `normed` to `room` of layers.c."""
        turned, dim, hidden = self._heads + self._kv_heads, self._head_dim, self._hidden
        qkv, rotated, mixed = (turned + self._kv_heads) * dim, turned * dim, self._heads * dim
        sizes = self._width, qkv, rotated, mixed, 2 * hidden, hidden, self._room
        return [torch.empty(rows * size) for size in sizes]

    def _seen(self, tasks: SlotTasks) -> ctypes.Array[ctypes.c_void_p]:
        """The address of each layer's task."""
        for task in {id(task): task for task in tasks.of_layers}.values():
            task.fit(self._heads, tasks.keys[0])
        return (_POINTER * len(self._layers))(*map(ctypes.addressof, tasks.of_layers))


def _layer(of: CodedLayer) -> _Layer:
    norms = of.attention_norm, of.ffn_norm, of.qk_norm
    return _Layer(*(None if norm is None else norm.data_ptr() for norm in norms), *map(_linear, of.linears))


def _linear(of: CodedLinear) -> _Linear:
    parts = (_POINTER * PARTS)(*(ctypes.addressof(part.matrix) for part in of.parts))
    return _Linear(parts, None if of.bias is None else of.bias.data_ptr())
