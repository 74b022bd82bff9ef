"""What a processor multiplies in, and what it keeps a model's matrices as."""

from typing import Literal

import torch

Storage = Literal["float32", "bfloat16", "float16", "int8", "int4"]
_CPU = torch.device("cpu")
STORAGES: tuple[Storage, ...] = ("float32", "bfloat16", "float16", "int8", "int4")


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

    choice   a Storage, or "auto": the fastest that does not move the model's answers (docs/benchmarks.md has figures).
             Beside float32 that is float16, which halves the bytes of a step and is multiplied in float32. On another
             device than the CPU it is the dtype itself
    errors   ValueError for another choice, or for one that this processor or device has no kernel for
    """
    if device.type != "cpu":
        return _dense_storage(choice, dtype)
    if choice == "auto":
        return "bfloat16" if dtype == torch.bfloat16 else "float16" if multiplies_float16() else "float32"
    if choice == "bfloat16" and dtype != torch.bfloat16:
        raise ValueError("weights bfloat16 needs dtype bfloat16, and that a processor with AVX-512")
    if choice == "float32" and dtype != torch.float32:
        raise ValueError("weights float32 needs dtype float32")
    if choice == "float16" and not multiplies_float16():
        raise ValueError("weights float16 needs an x86 processor with AVX2")
    for storage in STORAGES:
        if choice == storage:
            return storage
    raise ValueError(f"weights must be auto or one of {', '.join(STORAGES)}, not {choice!r}")


def _dense_storage(choice: str, dtype: torch.dtype) -> Storage:
    """Where matrices are multiplied as they are."""
    own: Storage = "bfloat16" if dtype == torch.bfloat16 else "float32"
    if choice in ("auto", own):
        return own
    if choice in ("float32", "bfloat16"):
        raise ValueError(f"weights {choice} needs dtype {choice}")
    raise ValueError(f"weights {choice} is packed for the CPU alone; use auto, or compute on the CPU")


def multiplies_float16() -> bool:
    """Whether FBGEMM is here, which multiplies float16 weights with float32 activations."""
    return "fbgemm" in torch.backends.quantized.supported_engines and _capability() != "DEFAULT"


def _multiplies_bfloat16() -> bool:
    return "AVX512" in _capability() and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())  # noqa: SLF001


def _capability() -> str:
    return torch.backends.cpu.get_cpu_capability().upper()
