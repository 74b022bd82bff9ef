"""How ggml stores numbers: plain ones as they are, quantised ones taken apart into codes, scales and minimums.

source   block layouts of the ggml project (block_q4_0 ... block_q6_K); everything is little-endian
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from worker.weights.blocks import QuantBlocks

Bytes = NDArray[np.uint8]
Parts = tuple[NDArray[np.uint8] | NDArray[np.int8], NDArray[np.float32], NDArray[np.float32] | None]

PLAIN = {0: torch.float32, 1: torch.float16, 30: torch.bfloat16}
"""ggml type -> dtype of tensors that are not quantised."""


@dataclass(frozen=True, slots=True)
class BlockType:
    """One quantised storage type.

    values   that a block in the file holds; size of them share one scale
    bytes    of a block in the file
    take     uint8 [blocks, bytes] -> codes [blocks, values], scales and minimums [blocks, values / size]
    """

    name: str
    bits: int
    values: int
    size: int
    bytes: int
    take: Callable[[Bytes], Parts]

    def blocks(self, raw: Bytes, rows: int) -> QuantBlocks:
        """A matrix of so many rows from all of its bytes."""
        codes, scale, minimum = self.take(raw.reshape(-1, self.bytes))
        return QuantBlocks(
            codes=torch.from_numpy(codes.reshape(rows, -1)),
            scale=torch.from_numpy(scale.reshape(rows, -1)),
            minimum=None if minimum is None else torch.from_numpy(minimum.reshape(rows, -1)),
            size=self.size,
            bits=self.bits,
        )


def _half(raw: Bytes) -> NDArray[np.float32]:
    return np.ascontiguousarray(raw).view(np.float16).astype(np.float32)


def _fields(raw: Bytes, width: int, run: int) -> Bytes:
    """Fields of `width` bits: each run of bytes holds the lowest bits of `run` values, then the next of `run` more.

    raw      [blocks, bytes]
    returns  [blocks, bytes * 8 / width]
    """
    shifts = np.arange(0, 8, width, dtype=np.uint8).reshape(1, 1, -1, 1)
    fields = (raw.reshape(len(raw), -1, 1, run) >> shifts) & np.uint8((1 << width) - 1)
    return fields.reshape(len(raw), -1)


def _q4_0(raw: Bytes) -> Parts:
    scale = _half(raw[:, :2])
    return _fields(raw[:, 2:], 4, 16), scale, scale * -8.0


def _q4_1(raw: Bytes) -> Parts:
    return _fields(raw[:, 4:], 4, 16), _half(raw[:, :2]), _half(raw[:, 2:4])


def _q5_0(raw: Bytes) -> Parts:
    scale = _half(raw[:, :2])
    return _fifth_bit(raw[:, 2:6], _fields(raw[:, 6:], 4, 16)), scale, scale * -16.0


def _q5_1(raw: Bytes) -> Parts:
    return _fifth_bit(raw[:, 4:8], _fields(raw[:, 8:], 4, 16)), _half(raw[:, :2]), _half(raw[:, 2:4])


def _fifth_bit(high: Bytes, low: Bytes) -> Bytes:
    """Bit i of the 32-bit number `high` is the top bit of value i."""
    return low | (_fields(high, 1, 1) << np.uint8(4))


def _q8_0(raw: Bytes) -> Parts:
    return raw[:, 2:].copy().view(np.int8), _half(raw[:, :2]), None  # of one block it would be the file's own memory


def _q4_k(raw: Bytes) -> Parts:
    return _fields(raw[:, 16:], 4, 32), *_k_scales(raw)


def _q5_k(raw: Bytes) -> Parts:
    return _fields(raw[:, 48:], 4, 32) | (_fields(raw[:, 16:48], 1, 32) << np.uint8(4)), *_k_scales(raw)


def _k_scales(raw: Bytes) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Of eight groups: two halves that multiply, and twelve bytes of six-bit numbers.

    Four bytes hold scales 0-3, four minimums 0-3, and four the low halves of scales 4-7 and (above them) minimums 4-7,
    whose upper two bits are the upper two of the first eight bytes.
    """
    first, second, third = raw[:, 4:8], raw[:, 8:12], raw[:, 12:16]
    scales = np.concatenate((first & 0x3F, (third & 0x0F) | ((first >> 2) & 0x30)), axis=1)
    minimums = np.concatenate((second & 0x3F, (third >> 4) | ((second >> 2) & 0x30)), axis=1)
    return _half(raw[:, :2]) * scales.astype(np.float32), -_half(raw[:, 2:4]) * minimums.astype(np.float32)


def _q6_k(raw: Bytes) -> Parts:
    low, high = _fields(raw[:, :128], 4, 64), _fields(raw[:, 128:192], 2, 32)
    codes = (low | (high << np.uint8(4))).astype(np.int8) - np.int8(32)
    scales = np.ascontiguousarray(raw[:, 192:208]).view(np.int8).astype(np.float32)
    return codes, _half(raw[:, 208:]) * scales, None


QUANTISED = {
    2: BlockType("Q4_0", 4, 32, 32, 18, _q4_0),
    3: BlockType("Q4_1", 4, 32, 32, 20, _q4_1),
    6: BlockType("Q5_0", 5, 32, 32, 22, _q5_0),
    7: BlockType("Q5_1", 5, 32, 32, 24, _q5_1),
    8: BlockType("Q8_0", 8, 32, 32, 34, _q8_0),
    12: BlockType("Q4_K", 4, 256, 32, 144, _q4_k),
    13: BlockType("Q5_K", 5, 256, 32, 176, _q5_k),
    14: BlockType("Q6_K", 6, 256, 16, 210, _q6_k),
}
"""ggml type -> how its blocks are taken apart."""

REFUSED = {
    10: "Q2_K",
    11: "Q3_K",
    16: "IQ2_XXS",
    17: "IQ2_XS",
    18: "IQ3_XXS",
    19: "IQ1_S",
    20: "IQ4_NL",
    21: "IQ3_S",
    22: "IQ2_S",
    23: "IQ4_XS",
    29: "IQ1_M",
    34: "TQ1_0",
    35: "TQ2_0",
    39: "MXFP4",
}
"""ggml type -> name, of those that an operator may meet and that are not read."""
