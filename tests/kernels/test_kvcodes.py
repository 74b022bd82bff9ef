"""Codes of KV: how far a value may be off, and that rounding twice is rounding once."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from kernels import KV_CODES, KVCodes, as_codes, as_values, codes_dtype, quantize, rounded
from kernels.kvcodes import dequantize

INT8, FP8 = torch.int8, torch.float8_e4m3fn
TOPS = {INT8: 127, FP8: 448}
dtypes = st.sampled_from([INT8, FP8])
computed = st.sampled_from([torch.float32, torch.bfloat16])
bits = st.integers(-(2**31), 2**31 - 1)


def same(one: Tensor, other: Tensor) -> bool:
    """Bit for bit, but that any not-a-number equals any other."""
    unsigned = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[one.dtype.itemsize]
    return bool(((one.view(unsigned) == other.view(unsigned)) | (one != one) & (other != other)).all())


@st.composite
def rows(draw: st.DrawFn) -> Tensor:
    """A few rows of numbers of one magnitude each, from what float32 can hardly hold to the largest, some of them 0."""
    count, size = draw(st.integers(1, 6)), draw(st.sampled_from([2, 16, 64]))
    random = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    exponents = torch.tensor(draw(st.lists(st.integers(-140, 126), min_size=count, max_size=count)))
    spread = torch.randn(count, size, generator=random).clamp_(-3, 3) / 3
    return spread * (torch.rand(count, size, generator=random) > 0.1) * torch.exp2(exponents.float()).unsqueeze(1)


@given(x=rows())
def test_no_value_of_int8_is_further_off_than_half_a_scale(x: Tensor) -> None:
    codes, peaks = quantize(x, INT8)
    half = peaks.double().unsqueeze(1) / 127 / 2
    assert ((dequantize(codes, peaks, torch.float32).double() - x.double()).abs() <= half * (1 + 1e-4)).all()


@given(x=rows())
def test_no_value_of_fp8_is_further_off_than_half_of_its_own_step(x: Tensor) -> None:
    """Three bits behind the first: a sixteenth of the number, or below the least exponent half of a fixed step."""
    codes, peaks = quantize(x, FP8)
    bound = torch.maximum(x.double().abs() / 16, peaks.double().unsqueeze(1) / 448 * 2**-10)
    assert ((dequantize(codes, peaks, torch.float32).double() - x.double()).abs() <= bound * (1 + 1e-4)).all()


@given(x=rows(), dtype=dtypes, compute=computed)
def test_what_is_rounded_has_the_codes_and_peaks_that_it_came_from(
    x: Tensor, dtype: torch.dtype, compute: torch.dtype
) -> None:
    codes, peaks = quantize(x.to(compute), dtype)
    value = dequantize(codes, peaks, compute)
    again, peaks_again = quantize(value, dtype)
    assert same(peaks_again, peaks)
    assert (again.float() == codes.float()).all()
    assert same(rounded(value, dtype), value)


@given(numbers=st.lists(bits, min_size=4, max_size=4), dtype=dtypes, compute=computed)
def test_nor_does_any_row_of_any_bits_change_when_it_is_rounded_again(
    numbers: list[int], dtype: torch.dtype, compute: torch.dtype
) -> None:
    x = torch.tensor([numbers], dtype=torch.int32).view(torch.float32).to(compute)
    once = rounded(x, dtype)
    assert same(rounded(once, dtype), once)
    assert bool(once.isnan().all()) == bool(x.isnan().any())
    assert not once.isinf().any()


@pytest.mark.parametrize("dtype", [INT8, FP8])
def test_zeros_stay_zeros(dtype: torch.dtype) -> None:
    codes, peaks = quantize(torch.zeros(2, 8), dtype)
    assert not codes.float().any()
    assert (peaks > 0).all()
    assert not rounded(torch.zeros(2, 8), dtype).any()


@pytest.mark.parametrize("dtype", [INT8, FP8])
def test_one_row_says_nothing_of_another(dtype: torch.dtype) -> None:
    x = torch.tensor([[math.nan, 1.0], [1e-30, 3e-31], [math.inf, -1.0], [1e30, 2e29]])
    together = rounded(x, dtype)
    for row in range(len(x)):
        assert same(together[row], rounded(x[row : row + 1], dtype)[0])
    assert together[0].isnan().all()
    largest = torch.finfo(torch.bfloat16).max
    assert together[2].tolist() == [pytest.approx(largest), 0.0]


@given(codes=st.lists(st.integers(0, 255), min_size=1, max_size=40))
def test_every_code_of_fp8_means_what_torch_says(codes: list[int]) -> None:
    numbers = [code for code in codes if code & 127 != 127]  # those two are no numbers
    stored = torch.tensor(numbers, dtype=torch.uint8).view(FP8).view(1, -1)
    value = dequantize(stored, torch.full((1,), 448.0, dtype=torch.bfloat16), torch.float32)
    assert same(value, stored.float())


@pytest.mark.parametrize("name", KV_CODES)
@pytest.mark.parametrize("compute", [torch.float32, torch.bfloat16])
def test_transposed_keys_have_a_peak_for_each_token_too(name: KVCodes, compute: torch.dtype) -> None:
    rows_of = torch.randn(2, 3, 4, 5, 8).to(compute)  # keys and values [3, 4, tokens, head_dim]
    keys, values = rows_of[0].transpose(-1, -2), rows_of[1]
    parts = as_codes(keys, values, codes_dtype(name))
    assert [part.shape for part in parts] == [(3, 4, 8, 5), (3, 4, 5, 8), (3, 4, 5), (3, 4, 5)]
    found_keys, found_values = as_values(parts, compute)
    assert same(found_keys.transpose(-1, -2).contiguous(), rounded(rows_of[0], codes_dtype(name)))
    assert same(found_values, rounded(rows_of[1], codes_dtype(name)))
