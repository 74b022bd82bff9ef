"""Linear layers whose weights are re-ordered once, at load, into the layout that oneDNN multiplies fastest."""

import torch
from torch import Tensor

# oneDNN chooses the blocked layout by the number of rows that it expects. 32 rows is the best compromise between decode
# (1 to 32 rows) and prefill chunks (up to 256): each is within 10 % of its own best layout.
_EXPECTED_ROWS = 32


def compute_dtype(choice: str) -> torch.dtype:
    """The dtype that weights, activations and KV are kept in.

    choice   "float32", "bfloat16", or "auto": bfloat16 where the processor multiplies it natively, else float32
    errors   ValueError for another choice, or for bfloat16 on a processor where oneDNN cannot pack it
    """
    wide = "avx512" in torch.backends.cpu.get_cpu_capability().lower()
    native = wide and torch.ops.mkldnn._is_mkldnn_bf16_supported()  # noqa: SLF001
    if choice == "auto":
        return torch.bfloat16 if native else torch.float32
    if choice == "float32":
        return torch.float32
    if choice != "bfloat16":
        raise ValueError(f"dtype must be auto, float32 or bfloat16, not {choice!r}")
    if not native:
        raise ValueError("dtype bfloat16 needs a processor with AVX-512; use float32 or auto")
    return torch.bfloat16


class Linear:
    """y = x · Wᵀ + b.

    weight   [out, in], any float dtype; kept only in packed form
    bias     [out], or None
    call     x [rows, in] of `dtype` -> [rows, out] of `dtype`
    """

    def __init__(self, weight: Tensor, dtype: torch.dtype, bias: Tensor | None = None) -> None:
        self.out_features, self.in_features = weight.shape
        self.dtype = dtype
        self._bias = None if bias is None else bias.to(dtype).contiguous()
        rows = weight.to(dtype).contiguous()
        self._packed = torch.ops.mkldnn._reorder_linear_weight(rows, _EXPECTED_ROWS)  # noqa: SLF001

    def __call__(self, x: Tensor) -> Tensor:
        y: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._packed, self._bias, "none", [], "")  # noqa: SLF001
        return y
