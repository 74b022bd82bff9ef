"""What a processor multiplies in, and what it keeps a model's matrices as."""

from typing import Literal

import torch

from kernels.native import native

# "a8" brings activations to 8 bits too. "w8a8" is what int8 is on CUDA; nobody asks for it by that name.
Storage = Literal["float32", "bfloat16", "float16", "file", "file-a8", "int8", "int4", "fp8", "w8a8"]
STORAGES: tuple[Storage, ...] = ("float32", "bfloat16", "float16", "file", "file-a8", "int8", "int4", "fp8")
_CODED = ("file", "file-a8", "int8", "int4")
_CPU = torch.device("cpu")
_FLOAT8_CARD = "a CUDA device of compute capability 8.9 or newer"


def compute_dtype(choice: str, device: torch.device = _CPU) -> torch.dtype:
    """The dtype of activations and KV.

    choice   "float32", "bfloat16", or "auto": bfloat16 where the device multiplies it natively, else float32
    errors   ValueError for another choice, or for bfloat16 on a processor where oneDNN cannot pack it
    """
    native = device.type != "cpu" or _multiplies_bfloat16()
    if choice == "auto":
        return torch.bfloat16 if native else torch.float32
    if choice == "float32":
        return torch.float32
    if choice != "bfloat16":
        raise ValueError(f"dtype must be auto, float32 or bfloat16, not {choice!r}")
    if not native:
        raise ValueError("dtype bfloat16 needs a processor with AVX-512; use float32 or auto")
    return torch.bfloat16


def storage_of(choice: str, dtype: torch.dtype, device: torch.device = _CPU) -> Storage:
    """What matrices are kept as, for activations of this dtype.

    choice   one of STORAGES, or "auto": the fastest that moves the model's answers far less than a quantised file did
             itself (docs/benchmarks.md has figures). Beside float32 that is file-a8, which multiplies by the codes of
             such a file as they are, activations in 8 bits where the codes have 4 (as llama.cpp does) and in 16
             elsewhere, as file has them throughout; plain numbers are kept in 16 bits. Without kernels in C it is
             float16. On another device than the CPU it is the dtype itself
    errors   ValueError for another choice, or for one that this processor or device has no kernel for
    """
    if device.type != "cpu":
        return _device_storage(choice, dtype, device)
    if choice == "auto":
        return _auto(dtype)
    if choice == "bfloat16" and dtype != torch.bfloat16:
        raise ValueError("weights bfloat16 needs dtype bfloat16, and that a processor with AVX-512")
    if choice == "float32" and dtype != torch.float32:
        raise ValueError("weights float32 needs dtype float32")
    if choice == "fp8":
        raise ValueError(f"weights fp8 needs {_FLOAT8_CARD}; on the CPU use int8, int4 or auto")
    if choice in _CODED and native() is None:
        raise ValueError(f"weights {choice} needs kernels in C, and they could not be compiled; install gcc")
    if choice == "float16" and not multiplies_float16():
        raise ValueError("weights float16 needs an x86 processor with AVX2")
    for storage in STORAGES:
        if choice == storage:
            return storage
    raise ValueError(f"weights must be auto or one of {', '.join(STORAGES)}, not {choice!r}")


def _auto(dtype: torch.dtype) -> Storage:
    if dtype == torch.bfloat16:
        return "bfloat16"
    if native() is not None:
        return "file-a8"
    return "float16" if multiplies_float16() else "float32"


def _device_storage(choice: str, dtype: torch.dtype, device: torch.device) -> Storage:
    """Where matrices are multiplied as they are, or by 8-bit codes of the activations."""
    own: Storage = "bfloat16" if dtype == torch.bfloat16 else "float32"
    if choice in ("auto", own):
        return own
    if choice in ("float32", "bfloat16"):
        raise ValueError(f"weights {choice} needs dtype {choice}")
    if choice == "int8":
        return "w8a8"
    if choice != "fp8":
        raise ValueError(f"weights {choice} is packed for the CPU alone; use int8, fp8 or auto, or compute on the CPU")
    if dtype != torch.bfloat16:
        raise ValueError("weights fp8 needs dtype bfloat16, which its products come in")
    if not multiplies_float8(device):
        raise ValueError(f"weights fp8 needs {_FLOAT8_CARD}; use int8 or auto")
    return "fp8"


def multiplies_float16() -> bool:
    """Whether FBGEMM is here, which multiplies float16 weights with float32 activations."""
    return "fbgemm" in torch.backends.quantized.supported_engines and _capability() != "DEFAULT"


def multiplies_float8(device: torch.device) -> bool:
    """Whether a device multiplies e4m3 natively, as CUDA does from compute capability 8.9 on."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 9)


def _multiplies_bfloat16() -> bool:
    return "AVX512" in _capability() and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())  # noqa: SLF001


def _capability() -> str:
    return torch.backends.cpu.get_cpu_capability().upper()
