"""Keys and values as 8-bit codes: a row is the head_dim numbers of one token and KV head, and has a scale of its own.

    peak  = the largest magnitude of the row, rounded to bfloat16
    scale = peak / top, in float32; top is 127 for int8 and 448 for float8_e4m3fn, the largest code
    code  = the row / scale, rounded to the nearest code
    value = code * scale, in float32, then in the dtype that is computed in

The peak is kept instead of the scale, in two bytes. The number that made the peak is always coded as `top`, since
bfloat16 is off by 2**-9 at most and the steps of both codes are wider there. So its value is top * (peak / top), which
rounds to the peak again, and a row of values has just the codes and the peak that it came from, in float32 and in
bfloat16: what is rounded once may be rounded as often as anyone likes.

A row of zeros stays zeros. A row with something that is not a number is all not a number, as what attends to it would
be. An infinity counts as the largest number of bfloat16.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

KVCodes = Literal["int8", "fp8"]
KV_CODES: tuple[KVCodes, ...] = ("int8", "fp8")

_TOPS = {torch.int8: 127.0, torch.float8_e4m3fn: 448.0}
_LOWEST = 2.0**-100  # of a peak: below it a row is as good as nothing, and its scale would lose bits
_HIGHEST = float(torch.finfo(torch.bfloat16).max)


def codes_dtype(codes: KVCodes) -> torch.dtype:
    """What codes of this name are kept as."""
    return {"int8": torch.int8, "fp8": torch.float8_e4m3fn}[codes]


def quantize(x: Tensor, dtype: torch.dtype, dim: int = -1) -> tuple[Tensor, Tensor]:
    """Codes and peaks of rows.

    x         float32 or bfloat16, rows along `dim`
    dtype     int8 or float8_e4m3fn
    returns   codes of the shape of x; peaks, bfloat16, the same without `dim`
    bound     for int8 no value is further from its number than half a scale, but for float32's own rounding
    """
    top = _TOPS[dtype]
    # With the rows contiguous: along another dimension torch takes seven times as long to find the largest.
    peaks = x.movedim(dim, -1).contiguous().abs().amax(-1).clamp_(_LOWEST, _HIGHEST).to(torch.bfloat16).unsqueeze(dim)
    steps = (x / _scale(peaks, top)).nan_to_num_(0.0, top, -top)
    codes = steps.round_().to(dtype) if dtype == torch.int8 else steps.to(dtype)
    return codes, peaks.squeeze(dim)


def dequantize(codes: Tensor, peaks: Tensor, dtype: torch.dtype, dim: int = -1) -> Tensor:
    """The values of codes.

    codes     rows along `dim`
    peaks     the same shape without `dim`
    dtype     of the values
    """
    scale = _scale(peaks.unsqueeze(dim), _TOPS[codes.dtype])
    return torch.mul(codes if codes.dtype == torch.int8 else _widened(codes), scale).to(dtype)


def rounded(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Rows along the last dimension as they come back from codes of `dtype`; rounding them again changes no bit."""
    return dequantize(*quantize(x, dtype), x.dtype)


def as_codes(keys: Tensor, values: Tensor, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """Transposed keys [.., head_dim, tokens] and values [.., tokens, head_dim] as codes.

    returns   keys, values, peaks of the keys [.., tokens], peaks of the values [.., tokens]
    """
    (key_codes, key_peaks), (value_codes, value_peaks) = quantize(keys, dtype, -2), quantize(values, dtype)
    return key_codes, value_codes, key_peaks, value_peaks


def as_values(parts: Sequence[Tensor], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The keys and values of what `as_codes` returned; two parts are keys and values already."""
    keys, values, *peaks = parts
    if not peaks:
        return keys, values
    return dequantize(keys, peaks[0], dtype, -2), dequantize(values, peaks[1], dtype)


def _scale(peaks: Tensor, top: float) -> Tensor:
    return peaks.float().div_(top)


def _widened(codes: Tensor) -> Tensor:
    """float8_e4m3fn as float32; there is no code for what is not a number.

    The bits are float16's once the exponent has a fifth one, 0, which makes the number 2**8 times smaller. Torch's own
    conversion on the CPU takes each number by itself, ten times as long.
    """
    bits = codes.view(torch.int8).to(torch.int16).bitwise_left_shift_(7).bitwise_and_(-0x4001)
    return bits.view(torch.float16).float().mul_(256)
