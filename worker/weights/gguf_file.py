"""A reader for GGUF files: metadata, and tensors under the names that the file gives them.

source   the GGUF format, version 3 (and 2), of the ggml project
"""

import math
import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from worker.weights.blocks import QuantBlocks
from worker.weights.errors import ModelError
from worker.weights.ggml import PLAIN, QUANTISED, REFUSED
from worker.weights.numbers import expect_numbers

_MAGIC = b"GGUF"
_MAX_ENTRIES = 1 << 16  # metadata keys, and tensors
_MAX_ARRAY = 1 << 24
_MAX_DIMENSIONS = 4
_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_STRING, _ARRAY = 8, 9


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Where a tensor lies. shape is in torch order: rows first, the contiguous dimension last."""

    name: str
    shape: tuple[int, ...]
    kind: int
    offset: int


class GGUFFile:
    """One open model file.

    metadata   key -> int, float, bool, str, or a list of these
    tensors    name -> TensorInfo
    errors     ModelError when the file is cut short, of another version, or out of bounds
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("rb") as file:
            if path.stat().st_size < 24:
                raise ModelError(f"{path.name} is too short to be a GGUF file")
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        cursor = _Cursor(self._map)
        if cursor.take(4) != _MAGIC:
            raise ModelError(f"{path.name} is not a GGUF file")
        version = cursor.scalar("<I")
        if version not in (2, 3):
            raise ModelError(f"GGUF version {version} is not supported; versions 2 and 3 are")
        tensor_count, entry_count = cursor.scalar("<Q"), cursor.scalar("<Q")
        if max(tensor_count, entry_count) > _MAX_ENTRIES:
            raise ModelError("GGUF header counts are out of bounds")
        self.metadata: dict[str, Any] = {cursor.string(): cursor.value() for _ in range(entry_count)}
        infos = [cursor.tensor_info() for _ in range(tensor_count)]
        self.tensors = {info.name: info for info in infos}
        if len(self.tensors) != len(infos):
            twice = next(info.name for info in infos if self.tensors[info.name] is not info)
            raise ModelError(f"tensor {twice} is in the file twice")
        alignment = self.metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment < 1:
            raise ModelError("general.alignment is not a positive integer")
        self._data = -(-cursor.position // alignment) * alignment

    def tensor(self, name: str) -> Tensor:
        """The tensor, in float16, bfloat16 or float32 if it is stored so, else dequantised to float32.

        ModelError when it is missing, of a kind that we do not read, or holds what is no number.
        """
        info = self._info(name)
        dtype = PLAIN.get(info.kind)
        if dtype is not None:
            # Copied: torch gives no tensor over memory that can't be written.
            plain = torch.from_numpy(self._raw(info, 1, dtype.itemsize).copy()).view(dtype).view(info.shape)
            expect_numbers(name, plain)
            return plain
        blocks = self.blocks(name)
        assert blocks is not None
        return blocks.dequantize().view(info.shape)

    def blocks(self, name: str) -> QuantBlocks | None:
        """The tensor as its quantised blocks; None when it is stored as plain numbers. ModelError as for `tensor`."""
        info = self._info(name)
        if info.kind in PLAIN:
            return None
        kind = QUANTISED.get(info.kind)
        if kind is None:
            stored = f"{REFUSED.get(info.kind, 'an unknown type')} (ggml type {info.kind})"
            raise ModelError(f"tensor {name} is stored as {stored}, which is not supported")
        blocks = kind.blocks(self._raw(info, kind.values, kind.bytes), math.prod(info.shape[:-1]))
        expect_numbers(name, blocks.scale, *([] if blocks.minimum is None else [blocks.minimum]))
        return blocks

    def _info(self, name: str) -> TensorInfo:
        info = self.tensors.get(name)
        if info is None:
            raise ModelError(f"tensor {name} is missing")
        return info

    def _raw(self, info: TensorInfo, values: int, size: int) -> NDArray[np.uint8]:
        """The bytes of a tensor whose every `values` values take `size` bytes."""
        if info.shape[-1] % values:
            raise ModelError(f"tensor {info.name} does not divide into blocks of {values}")
        start, count = self._data + info.offset, math.prod(info.shape) // values * size
        if start + count > len(self._map):
            raise ModelError(f"tensor {info.name} reaches past the end of the file")
        return np.frombuffer(self._map, dtype=np.uint8, count=count, offset=start)


class _Cursor:
    """Reads little-endian values one after another; every read is checked against the end of the file."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self.position = 0

    def take(self, size: int) -> bytes:
        if size > len(self._data) - self.position:
            raise ModelError("the GGUF header is cut short")
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
            raise ModelError(f"tensor {name} has {dimensions} dimensions")
        shape = tuple(reversed([self.scalar("<Q") for _ in range(dimensions)]))
        if 0 in shape:
            raise ModelError(f"tensor {name} is empty")
        return TensorInfo(name, shape, self.scalar("<I"), self.scalar("<Q"))

    def _typed(self, kind: int) -> Any:
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            return self._array()
        layout = _SCALARS.get(kind)
        if layout is None:
            raise ModelError(f"metadata value of unknown type {kind}")
        return self.scalar(layout)

    def _array(self) -> list[Any]:
        kind, count = self.scalar("<I"), self.scalar("<Q")
        if count > _MAX_ARRAY or kind == _ARRAY:
            raise ModelError("metadata array is out of bounds")
        layout = _SCALARS.get(kind)
        if layout is None:
            return [self._typed(kind) for _ in range(count)]
        return list(struct.unpack(f"<{count}{layout[1]}", self.take(count * struct.calcsize(layout))))
