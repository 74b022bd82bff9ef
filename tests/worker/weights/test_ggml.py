"""Storage types: values bit for bit those of ggml's own package, and blocks that say how they come about."""

from pathlib import Path

import gguf as reference
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.worker.tiny import Stored, write_gguf
from worker.weights import GGUFFile
from worker.weights.ggml import PLAIN, QUANTISED, REFUSED

# Where half-precision numbers lie in a block; all other bytes may be anything.
HALVES = {
    "Q4_0": [0],
    "Q4_1": [0, 2],
    "Q5_0": [0],
    "Q5_1": [0, 2],
    "Q8_0": [0],
    "Q4_K": [0, 2],
    "Q5_K": [0, 2],
    "Q6_K": [208],
}


def blocks_of(name: str, count: int, seed: int) -> NDArray[np.uint8]:
    """Random blocks whose half-precision numbers are finite."""
    draw = np.random.default_rng(seed)
    size = reference.GGML_QUANT_SIZES[reference.GGMLQuantizationType[name]][1]
    raw = draw.integers(0, 256, (count, size), dtype=np.uint8)
    for at in HALVES[name]:
        raw[:, at : at + 2] = draw.standard_normal((count, 1)).astype("<f2").view(np.uint8)
    return raw


@pytest.mark.parametrize("kind", QUANTISED)
@given(seed=st.integers(0, 2**31))
def test_blocks_decode_to_the_very_values_of_the_reference(
    kind: int, tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    stored = QUANTISED[kind]
    raw, columns = blocks_of(stored.name, 3 * 2, seed), 2 * stored.values
    path = write_gguf(tmp_path_factory.mktemp("f") / "f", {}, {"t": Stored((3, columns), kind, raw.tobytes())})
    found = GGUFFile(path).tensor("t")
    expected = reference.quants.dequantize(raw, reference.GGMLQuantizationType(kind)).reshape(3, columns)
    assert (found.shape, found.dtype) == (expected.shape, torch.float32)
    assert np.array_equal(found.numpy(), expected)


@pytest.mark.parametrize("kind", QUANTISED)
def test_blocks_are_codes_scales_and_minimums(kind: int, tmp_path: Path) -> None:
    stored = QUANTISED[kind]
    raw, columns = blocks_of(stored.name, 5 * 2, 1), 2 * stored.values
    file = GGUFFile(write_gguf(tmp_path / "f", {}, {"t": Stored((5, columns), kind, raw.tobytes())}))
    blocks = file.blocks("t")
    assert blocks is not None
    assert (blocks.codes.shape, blocks.scale.shape) == ((5, columns), (5, columns // blocks.size))
    assert (blocks.bits, blocks.codes.dtype.itemsize) == (int(stored.name[1]), 1)
    low = int(blocks.codes.min())
    assert int(blocks.codes.max()) - low == 2**blocks.bits - 1
    assert low == (0 if blocks.minimum is not None else -(2 ** (blocks.bits - 1)))
    order = torch.tensor([3, 0, 4, 1, 2])
    assert torch.equal(blocks.rows(order).dequantize(), blocks.dequantize()[order])


def test_types_have_the_numbers_of_the_format() -> None:
    numbers = {kind: stored.name for kind, stored in QUANTISED.items()} | REFUSED
    assert numbers == {kind: reference.GGMLQuantizationType(kind).name for kind in numbers}
    assert {kind: str(dtype) for kind, dtype in PLAIN.items()} == {
        reference.GGMLQuantizationType.F32: "torch.float32",
        reference.GGMLQuantizationType.F16: "torch.float16",
        reference.GGMLQuantizationType.BF16: "torch.bfloat16",
    }
    for kind, stored in QUANTISED.items():
        sizes = reference.GGML_QUANT_SIZES[reference.GGMLQuantizationType(kind)]
        assert (stored.values, stored.bytes) == sizes


def test_plain_numbers_have_no_blocks(tmp_path: Path) -> None:
    assert GGUFFile(write_gguf(tmp_path / "f", {}, {"t": Stored((1, 2), 0, bytes(8))})).blocks("t") is None
