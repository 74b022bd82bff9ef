"""The reader: values as ggml defines them, and one error for everything that is not such a file."""

import struct
from contextlib import suppress
from pathlib import Path

import gguf as reference
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.worker.tiny import BF16, F16, F32, Q4_0, Q4_1, Q8_0, Stored, Value, write_gguf, write_tiny
from worker.weights import GGUFFile, ModelError

TENSOR = {"t": Stored((1, 32), F32, bytes(128))}


def block(kind: int, rng: np.random.Generator, rows: int) -> np.ndarray:
    """Random blocks of a kind, whose half-precision scales are finite."""
    _, size = reference.GGML_QUANT_SIZES[reference.GGMLQuantizationType(kind)]
    raw = rng.integers(0, 256, (rows, size), dtype=np.uint8)
    if kind in (Q4_0, Q4_1, Q8_0):
        scales = 2 if kind == Q4_1 else 1
        raw[:, : 2 * scales] = rng.standard_normal((rows, scales)).astype("<f2").view(np.uint8)
    return raw


@pytest.mark.parametrize("kind", [Q4_0, Q4_1, Q8_0])
def test_blocks_decode_to_the_very_values_of_the_reference(kind: int, tmp_path: Path) -> None:
    raw = block(kind, np.random.default_rng(kind), 7 * 3)
    file = GGUFFile(write_gguf(tmp_path / "f", {}, {"t": Stored((7, 96), kind, raw.tobytes())}))
    expected = reference.quants.dequantize(raw, reference.GGMLQuantizationType(kind)).reshape(7, 96)
    assert file.tensor("t").shape == (7, 96)
    assert np.array_equal(file.tensor("t").numpy(), expected)


@pytest.mark.parametrize(("kind", "dtype"), [(F32, torch.float32), (F16, torch.float16), (BF16, torch.bfloat16)])
def test_plain_numbers_decode_to_themselves(kind: int, dtype: torch.dtype, tmp_path: Path) -> None:
    values = torch.randn(5, 3).to(dtype)
    raw = values.view(torch.uint8).numpy().tobytes()
    file = GGUFFile(write_gguf(tmp_path / "f", {}, {"t": Stored((5, 3), kind, raw)}))
    assert file.tensor("t").dtype == dtype
    assert torch.equal(file.tensor("t"), values)


def test_every_type_of_metadata_is_read(tmp_path: Path) -> None:
    entries: dict[str, Value] = {
        "flag": True,
        "count": 7,
        "rate": 0.5,
        "name": "naïve 塩",
        "ids": [1, -2],
        "words": ["a", ""],
    }
    assert GGUFFile(write_gguf(tmp_path / "f", entries, {})).metadata == entries


@pytest.mark.parametrize(
    ("code", "layout", "value"),
    [
        (0, "<B", 255),
        (1, "<b", -1),
        (2, "<H", 65535),
        (3, "<h", -2),
        (5, "<i", -3),
        (10, "<Q", 2**63),
        (12, "<d", 1e300),
    ],
)
def test_every_width_of_number_is_read(code: int, layout: str, value: float, tmp_path: Path) -> None:
    entry = struct.pack("<Q1sI", 1, b"k", code) + struct.pack(layout, value)
    (tmp_path / "f").write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + entry)
    assert GGUFFile(tmp_path / "f").metadata == {"k": value}


def test_tensors_start_where_the_alignment_says(tmp_path: Path) -> None:
    stored = {name: Stored((1, 1), F32, struct.pack("<f", number)) for number, name in enumerate("abc")}
    file = GGUFFile(write_gguf(tmp_path / "f", {"general.alignment": 32}, stored))
    assert [file.tensor(name).item() for name in "abc"] == [0.0, 1.0, 2.0]


def test_version_two_is_the_same_to_us(tmp_path: Path) -> None:
    assert GGUFFile(write_gguf(tmp_path / "f", {"k": 1}, {}, version=2)).metadata == {"k": 1}


def refused(path: Path) -> str:
    """Reads all of a file; the message of the one error that may come."""
    with pytest.raises(ModelError) as caught:
        read_all(path)
    return str(caught.value)


def read_all(path: Path) -> None:
    file = GGUFFile(path)
    for name in file.tensors:
        file.tensor(name)


@given(st.data())
def test_a_file_cut_short_anywhere_is_refused(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.mktemp("cut") / "f"
    whole = write_gguf(path, {"name": "tiny", "words": ["a", "b"]}, TENSOR).read_bytes()
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    refused(path)


@given(st.data())
def test_a_damaged_file_is_read_or_refused_and_never_anything_else(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("damaged") / "f"
    raw = bytearray(write_gguf(path, {"general.alignment": 32, "words": ["a", "b"], "ids": [1]}, TENSOR).read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 130))] = data.draw(st.integers(0, 255))
    path.write_bytes(raw)
    with suppress(ModelError):
        read_all(path)


def header(tensors: int = 0, entries: int = 0, version: int = 3, magic: bytes = b"GGUF") -> bytes:
    return magic + struct.pack("<IQQ", version, tensors, entries)


KEY = struct.pack("<Q1s", 1, b"k")
INFO = struct.pack("<Q1s", 1, b"t")
BAD_FILES: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "too short"),
    "magic": (header(magic=b"FUGG"), "not a GGUF file"),
    "version 1": (header(version=1), "version 1 "),
    "version of another byte order": (header(version=3 << 24), "version 50331648"),
    "tensor count": (header(tensors=1 << 40), "counts"),
    "entry count": (header(entries=1 << 40), "counts"),
    "key length": (header(entries=1) + struct.pack("<Q", 1 << 62), "cut short"),
    "unknown type": (header(entries=1) + KEY + struct.pack("<I", 99), "unknown type 99"),
    "array length": (header(entries=1) + KEY + struct.pack("<IIQ", 9, 4, 1 << 50), "array"),
    "array longer than the file": (header(entries=1) + KEY + struct.pack("<IIQ", 9, 8, 1 << 20), "cut short"),
    "array of arrays": (header(entries=1) + KEY + struct.pack("<IIQ", 9, 9, 1), "array"),
    "array of unknown type": (header(entries=1) + KEY + struct.pack("<IIQ", 9, 77, 1), "unknown type 77"),
    "no dimensions": (header(tensors=1) + INFO + struct.pack("<I", 0), "0 dimensions"),
    "dimensions": (header(tensors=1) + INFO + struct.pack("<I", 1 << 30), "dimensions"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_header_is_refused_with_its_reason(name: str, tmp_path: Path) -> None:
    raw, reason = BAD_FILES[name]
    (tmp_path / "f").write_bytes(raw)
    assert reason in refused(tmp_path / "f")


def tensor_info(*shape: int, kind: int, offset: int) -> bytes:
    """A file whose one tensor is described so, with no data behind it."""
    dimensions = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
    return header(tensors=1) + INFO + dimensions + struct.pack("<IQ", kind, offset)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (tensor_info(32, kind=10, offset=0), "Q2_K (ggml type 10)"),
        (tensor_info(32, kind=99, offset=0), "ggml type 99"),
        (tensor_info(32, 0, kind=F32, offset=0), "empty"),
        (tensor_info(31, kind=Q8_0, offset=0), "blocks of 32"),
        (tensor_info(32, kind=F32, offset=0), "past the end"),
        (tensor_info(1, kind=F32, offset=1 << 63), "past the end"),
        (tensor_info(1 << 63, 1 << 63, kind=F32, offset=0), "past the end"),
        (tensor_info(1 << 32, 1 << 32, kind=F16, offset=0), "past the end"),
    ],
)
def test_a_tensor_out_of_bounds_is_refused_by_name(raw: bytes, reason: str, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(raw)
    message = refused(tmp_path / "f")
    assert "tensor t " in message
    assert reason in message


@pytest.mark.parametrize("alignment", [0, "32", [32], 0.5])
def test_an_alignment_that_is_none_is_refused(alignment: Value, tmp_path: Path) -> None:
    assert "general.alignment" in refused(write_gguf(tmp_path / "f", {"general.alignment": alignment}, {}))


def test_a_tensor_that_is_there_twice_is_refused_by_name(tmp_path: Path) -> None:
    info = INFO + struct.pack("<IQIQ", 1, 1, F32, 0)
    (tmp_path / "f").write_bytes(header(tensors=2) + 2 * info + bytes(64))
    assert refused(tmp_path / "f") == "tensor t is in the file twice"


@pytest.mark.parametrize(
    "stored",
    [
        Stored((2, 2), F32, np.array([1, 2, np.nan, 3], "<f4").tobytes()),
        Stored((2, 2), F16, np.array([1, 2, -np.inf, 3], "<f2").tobytes()),
        Stored((1, 2), BF16, struct.pack("<HH", 0x3F80, 0x7F80)),
        Stored((1, 32), Q8_0, np.array([np.nan], "<f2").tobytes() + bytes(32)),
        Stored((1, 32), Q4_1, np.array([1, np.inf], "<f2").tobytes() + bytes(16)),
    ],
)
def test_a_tensor_that_holds_what_is_no_number_is_refused_by_name(stored: Stored, tmp_path: Path) -> None:
    whole = write_gguf(tmp_path / "f", {}, {"fine": TENSOR["t"], "damaged": stored})
    assert refused(whole) == "tensor damaged holds what is no number; the file is damaged"


def test_a_missing_tensor_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"blk\.9\.attn_q\.weight is missing"):
        GGUFFile(write_tiny(tmp_path / "f")).tensor("blk.9.attn_q.weight")


def test_a_missing_file_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        GGUFFile(tmp_path / "nowhere")
