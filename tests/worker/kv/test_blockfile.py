"""The format: what is written is what is read, and anything else is nothing."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.worker.kv.blocks import ACME, BLOCK, GLOBEX, SHAPE, chain, kv, same_bits
from worker.kv.blockfile import BlockFile
from worker.kv.record import DiskRecord
from worker.kv.shape import KVShape
from worker.kv.staging import Image

ROOT, CHILD = chain(2)
FORMAT = BlockFile(SHAPE, BLOCK, "f" * 32)

shapes = st.builds(
    KVShape, *[st.integers(1, 4)] * 2, st.sampled_from([2, 4, 8]), st.sampled_from([torch.float32, torch.bfloat16])
)


def image_of(record: DiskRecord, seed: int = 0, file: BlockFile = FORMAT, shape: KVShape = SHAPE) -> Image:
    image = np.full(file.size, 0xA5, np.uint8)  # staging buffers come with old bytes in them
    file.fill(image, record, kv(seed, shape))
    file.seal(image)
    return image


@given(shapes, st.integers(0, 2**31), st.sampled_from([ROOT, CHILD]))
def test_a_block_comes_back_bit_for_bit(shape: KVShape, seed: int, record: DiskRecord) -> None:
    file = BlockFile(shape, BLOCK, "f")
    image = image_of(record, seed, file, shape)
    assert file.parse(image[: file.head_size].tobytes()) == record
    assert same_bits(file.open(image, record), kv(seed, shape))


@pytest.mark.parametrize("record", [ROOT, CHILD], ids=["root", "child"])
def test_no_byte_can_change_unseen(record: DiskRecord) -> None:
    image = image_of(record)
    for place in range(image.size):
        for flip in (0x01, 0x80, 0xFF):
            image[place] ^= flip
            assert FORMAT.open(image, record) is None
            assert place >= FORMAT.head_size or FORMAT.parse(image[: FORMAT.head_size].tobytes()) is None
            image[place] ^= flip
    assert FORMAT.open(image, record) is not None


@given(st.binary(max_size=2 * FORMAT.head_size))
def test_no_bytes_make_the_parser_stumble(junk: bytes) -> None:
    assert FORMAT.parse(junk) is None
    assert FORMAT.parse((FORMAT.head(ROOT)[:90] + junk)[: FORMAT.head_size]) in (None, ROOT)


@pytest.mark.parametrize(
    "foreign",
    [
        BlockFile(SHAPE, BLOCK, "e" * 32),
        BlockFile(SHAPE, BLOCK, "f" * 31),
        BlockFile(replace(SHAPE, layers=1, kv_heads=2), BLOCK, "f" * 32),
        BlockFile(replace(SHAPE, dtype=torch.int32), BLOCK, "f" * 32),
        BlockFile(replace(SHAPE, dtype=torch.bfloat16), BLOCK, "f" * 32),
        BlockFile(SHAPE, 2 * BLOCK, "f" * 32),
    ],
    ids=["model", "shorter name", "dimensions", "dtype", "width", "block size"],
)
def test_a_file_of_another_model_is_nothing(foreign: BlockFile) -> None:
    image = image_of(ROOT)
    assert foreign.parse(image[: foreign.head_size].tobytes()) is None
    if foreign.size == FORMAT.size:
        assert foreign.open(image, ROOT) is None


@pytest.mark.parametrize(
    "asked",
    [
        replace(CHILD, edge=CHILD.edge[:-1] + b"\xff"),
        replace(CHILD, edge=ACME.key + CHILD.edge),
        replace(CHILD, parent=None),
        replace(CHILD, parent=CHILD.digest),
        replace(CHILD, digest=ROOT.digest),
        replace(CHILD, lineage=ROOT.lineage),
    ],
    ids=["tokens", "namespace", "no parent", "parent", "digest", "lineage"],
)
def test_only_the_very_block_is_opened(asked: DiskRecord) -> None:
    assert FORMAT.open(image_of(CHILD), asked) is None


def test_equal_tokens_of_two_namespaces_never_meet_even_under_one_digest() -> None:
    mine, theirs = chain(1)[0], chain(1, namespace=GLOBEX)[0]
    assert mine.digest != theirs.digest
    assert FORMAT.open(image_of(mine), replace(theirs, digest=mine.digest)) is None


def test_strided_tensors_are_written_by_value() -> None:
    keys, values = kv(1)
    image = np.zeros(FORMAT.size, np.uint8)
    FORMAT.fill(image, ROOT, (keys.transpose(2, 3).contiguous().transpose(2, 3), values.flip(0).flip(0)))
    FORMAT.seal(image)
    assert same_bits(FORMAT.open(image, ROOT), kv(1))


def test_a_tensor_that_would_broadcast_or_convert_is_refused() -> None:
    keys, values = kv(1)
    image = np.zeros(FORMAT.size, np.uint8)
    for wrong in (keys[:1], keys.bfloat16(), values):
        with pytest.raises(ValueError, match="a block of this model is"):
            FORMAT.fill(image, ROOT, (wrong, values))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (replace(ROOT, digest=b"short"), "digest"),
        (replace(ROOT, parent=b"short"), "digest"),
        (replace(ROOT, edge=b"x" * 9), "edge"),
        (replace(ROOT, lineage=b"short"), "lineage"),
    ],
)
def test_a_record_that_cannot_be_is_refused(wrong: DiskRecord, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FORMAT.head(wrong)


def test_every_file_of_a_model_has_one_size_and_an_aligned_payload() -> None:
    assert FORMAT.head_size % 64 == 0
    assert FORMAT.size == FORMAT.head_size + SHAPE.bytes_per_token * BLOCK + 16
    assert len(FORMAT.head(ROOT)) == len(FORMAT.head(CHILD)) == FORMAT.head_size
