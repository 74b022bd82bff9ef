"""A reader for GGUF model files: metadata, and tensors dequantised to float32.

source   the GGUF format, version 3 (and 2), of the ggml project; block layouts Q4_0, Q4_1 and Q8_0 as ggml defines them
"""

import math
import mmap
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

_MAGIC = b"GGUF"
_MAX_ENTRIES = 1 << 16  # metadata keys, and tensors
_MAX_ARRAY = 1 << 24
_MAX_DIMENSIONS = 4
_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_STRING, _ARRAY = 8, 9


class GGUFError(ValueError):
    """The file is not a GGUF file that we can read; the message says why and names the tensor or key."""


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Where a tensor lies. shape is in torch order: rows first, the contiguous dimension last."""

    name: str
    shape: tuple[int, ...]
    kind: int
    offset: int


class GGUF:
    """One open model file.

    metadata   key -> int, float, bool, str, or a list of these
    tensors    name -> TensorInfo
    errors     GGUFError when the file is cut short, of another version, or out of bounds
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("rb") as file:
            if path.stat().st_size < 24:
                raise GGUFError(f"{path.name} is too short to be a GGUF file")
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        cursor = _Cursor(self._map)
        if cursor.take(4) != _MAGIC:
            raise GGUFError(f"{path.name} is not a GGUF file")
        version = cursor.scalar("<I")
        if version not in (2, 3):
            raise GGUFError(f"GGUF version {version} is not supported; versions 2 and 3 are")
        tensor_count, entry_count = cursor.scalar("<Q"), cursor.scalar("<Q")
        if max(tensor_count, entry_count) > _MAX_ENTRIES:
            raise GGUFError("GGUF header counts are out of bounds")
        self.metadata: dict[str, Any] = {cursor.string(): cursor.value() for _ in range(entry_count)}
        infos = [cursor.tensor_info() for _ in range(tensor_count)]
        self.tensors = {info.name: info for info in infos}
        alignment = self.metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment < 1:
            raise GGUFError("general.alignment is not a positive integer")
        self._data = -(-cursor.position // alignment) * alignment

    def tensor(self, name: str) -> Tensor:
        """The tensor as float32, dequantised. GGUFError when it is missing or of a kind that we do not read."""
        info = self.tensors.get(name)
        if info is None:
            raise GGUFError(f"tensor {name} is missing")
        kind = _KINDS.get(info.kind)
        if kind is None:
            raise GGUFError(f"tensor {name} is of ggml type {info.kind}, which is not supported")
        count = math.prod(info.shape)
        if count % kind.values or info.shape[-1] % kind.values:
            raise GGUFError(f"tensor {name} does not divide into blocks of {kind.values}")
        start, size = self._data + info.offset, count // kind.values * kind.bytes
        if start + size > len(self._map):
            raise GGUFError(f"tensor {name} reaches past the end of the file")
        raw = np.frombuffer(self._map, dtype=np.uint8, count=size, offset=start).reshape(-1, kind.bytes)
        return torch.from_numpy(kind.decode(raw).reshape(info.shape))


class _Cursor:
    """Reads little-endian values one after another; every read is checked against the end of the file."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self.position = 0

    def take(self, size: int) -> bytes:
        if size > len(self._data) - self.position:
            raise GGUFError("the GGUF header is cut short")
        self.position += size
        return self._data[self.position - size : self.position]

    def scalar(self, layout: str) -> Any:
        return struct.unpack(layout, self.take(struct.calcsize(layout)))[0]

    def string(self) -> str:
        return self.take(self.scalar("<Q")).decode("utf-8", errors="replace")

    def value(self) -> Any:
        return self._typed(self.scalar("<I"))

    def tensor_info(self) -> TensorInfo:
        name, dimensions = self.string(), self.scalar("<I")
        if not 1 <= dimensions <= _MAX_DIMENSIONS:
            raise GGUFError(f"tensor {name} has {dimensions} dimensions")
        shape = tuple(reversed([self.scalar("<Q") for _ in range(dimensions)]))
        return TensorInfo(name, shape, self.scalar("<I"), self.scalar("<Q"))

    def _typed(self, kind: int) -> Any:
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            return self._array()
        layout = _SCALARS.get(kind)
        if layout is None:
            raise GGUFError(f"metadata value of unknown type {kind}")
        return self.scalar(layout)

    def _array(self) -> list[Any]:
        kind, count = self.scalar("<I"), self.scalar("<Q")
        if count > _MAX_ARRAY or kind == _ARRAY:
            raise GGUFError("metadata array is out of bounds")
        layout = _SCALARS.get(kind)
        if layout is None:
            return [self._typed(kind) for _ in range(count)]
        return list(struct.unpack(f"<{count}{layout[1]}", self.take(count * struct.calcsize(layout))))


@dataclass(frozen=True, slots=True)
class _Kind:
    """One ggml storage type: how many values a block holds, its size, and how it is decoded to float32."""

    values: int
    bytes: int
    decode: Callable[[np.ndarray], np.ndarray]


def _half(raw: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(raw).view(np.float16).astype(np.float32)


def _nibbles(raw: np.ndarray) -> np.ndarray:
    """Sixteen bytes hold 32 values: the low nibbles are the first sixteen, the high nibbles the rest."""
    return np.concatenate((raw & 0x0F, raw >> 4), axis=1).astype(np.float32)


def _bfloat16(raw: np.ndarray) -> np.ndarray:
    return (np.ascontiguousarray(raw).view(np.uint16).astype(np.uint32) << 16).view(np.float32)


_KINDS = {
    0: _Kind(1, 4, lambda raw: np.ascontiguousarray(raw).view(np.float32).copy()),
    1: _Kind(1, 2, _half),
    2: _Kind(32, 18, lambda raw: (_nibbles(raw[:, 2:]) - 8.0) * _half(raw[:, :2])),
    3: _Kind(32, 20, lambda raw: _nibbles(raw[:, 4:]) * _half(raw[:, :2]) + _half(raw[:, 2:4])),
    8: _Kind(32, 34, lambda raw: np.ascontiguousarray(raw[:, 2:]).view(np.int8).astype(np.float32) * _half(raw[:, :2])),
    30: _Kind(1, 2, _bfloat16),
}
