import pytest
import torch

from kernels import STORAGES, Storage, compute_dtype, storage_of


@pytest.fixture
def processor(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: request.param)
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: True)


on = pytest.mark.parametrize
CUDA = torch.device("cuda")


def test_float32_can_always_be_chosen_and_auto_is_one_of_the_two() -> None:
    assert compute_dtype("float32") == torch.float32
    assert compute_dtype("auto") in (torch.float32, torch.bfloat16)


@on(("processor", "auto"), [("AVX512", torch.bfloat16), ("AVX2", torch.float32)], indirect=["processor"])
@pytest.mark.usefixtures("processor")
def test_bfloat16_needs_a_processor_that_multiplies_it(auto: torch.dtype) -> None:
    assert compute_dtype("auto") == auto
    if auto == torch.bfloat16:
        assert compute_dtype("bfloat16") == torch.bfloat16
    else:
        with pytest.raises(ValueError, match="AVX-512"):
            compute_dtype("bfloat16")


def test_another_dtype_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="'float16'"):
        compute_dtype("float16")


@on(
    ("processor", "dtype", "storage"),
    [
        ("AVX512", torch.bfloat16, "bfloat16"),
        ("AVX512", torch.float32, "float16"),
        ("AVX2", torch.float32, "float16"),
        ("DEFAULT", torch.float32, "float32"),
    ],
    indirect=["processor"],
)
@pytest.mark.usefixtures("processor", "without_native")
def test_without_kernels_in_c_auto_keeps_weights_in_16_bits_where_there_is_a_kernel(
    dtype: torch.dtype, storage: Storage
) -> None:
    assert storage_of("auto", dtype) == storage


@on("processor", ["AVX2", "DEFAULT"], indirect=True)
@pytest.mark.usefixtures("processor", "library")
def test_with_kernels_in_c_auto_keeps_what_the_file_has() -> None:
    assert storage_of("auto", torch.float32) == "file-a8"


@pytest.mark.usefixtures("without_native")
@on("choice", ["file", "file-a8", "int8", "int4"])
def test_codes_need_kernels_in_c(choice: str) -> None:
    with pytest.raises(ValueError, match=f"weights {choice} needs kernels in C"):
        storage_of(choice, torch.float32)


@on("processor", ["AVX2"], indirect=True)
@pytest.mark.usefixtures("processor")
def test_what_is_asked_for_by_name_is_what_one_gets() -> None:
    for storage in set(STORAGES) - {"fp8"}:
        dtype = torch.bfloat16 if storage == "bfloat16" else torch.float32
        assert storage_of(storage, dtype) == storage


@on(
    ("processor", "choice", "dtype", "reason"),
    [
        ("AVX2", "bfloat16", torch.float32, "bfloat16 needs dtype bfloat16"),
        ("AVX512", "float32", torch.bfloat16, "float32 needs dtype float32"),
        ("DEFAULT", "float16", torch.float32, "AVX2"),
        ("AVX2", "int3", torch.float32, "'int3'"),
        ("AVX2", "fp8", torch.float32, "fp8 needs a CUDA device .*; on the CPU use int8, int4 or auto"),
    ],
    indirect=["processor"],
)
@pytest.mark.usefixtures("processor")
def test_what_the_processor_or_the_dtype_rules_out_is_refused(choice: str, dtype: torch.dtype, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        storage_of(choice, dtype)


@on("processor", ["DEFAULT"], indirect=True)
@pytest.mark.usefixtures("processor")
def test_on_cuda_the_processor_does_not_matter() -> None:
    assert compute_dtype("auto", CUDA) == compute_dtype("bfloat16", CUDA) == torch.bfloat16
    assert compute_dtype("float32", CUDA) == torch.float32


@on(("dtype", "storage"), [(torch.bfloat16, "bfloat16"), (torch.float32, "float32")])
def test_on_cuda_matrices_are_of_the_dtype_itself(dtype: torch.dtype, storage: Storage) -> None:
    assert storage_of("auto", dtype, CUDA) == storage_of(storage, dtype, CUDA) == storage
    other = "float32" if storage == "bfloat16" else "bfloat16"
    with pytest.raises(ValueError, match=f"{other} needs dtype {other}"):
        storage_of(other, dtype, CUDA)


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Its compute capability."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _device: request.param)


@on("dtype", [torch.bfloat16, torch.float32])
def test_int8_on_cuda_is_another_storage_than_on_the_cpu(dtype: torch.dtype) -> None:
    assert storage_of("int8", dtype, CUDA) == "w8a8"
    assert storage_of("int8", dtype) == "int8"


@on("card", [(8, 9), (9, 0), (12, 0)], indirect=True)
@pytest.mark.usefixtures("card")
def test_fp8_goes_with_bfloat16() -> None:
    assert storage_of("fp8", torch.bfloat16, CUDA) == "fp8"
    with pytest.raises(ValueError, match="fp8 needs dtype bfloat16"):
        storage_of("fp8", torch.float32, CUDA)


@on("card", [(8, 0), (8, 6)], indirect=True)
@pytest.mark.usefixtures("card")
def test_fp8_needs_a_card_that_has_it() -> None:
    with pytest.raises(ValueError, match=r"fp8 needs a CUDA device of compute capability 8\.9 or newer; use int8"):
        storage_of("fp8", torch.bfloat16, CUDA)


@on("choice", ["float16", "int4"])
def test_what_is_packed_for_the_cpu_is_refused_on_cuda(choice: str) -> None:
    with pytest.raises(ValueError, match=f"weights {choice} is packed for the CPU alone"):
        storage_of(choice, torch.bfloat16, CUDA)
