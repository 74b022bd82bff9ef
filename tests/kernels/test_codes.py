from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from kernels import GroupCodes, RowCodes, in_float8_rows, in_groups, in_rows

Coded = Callable[[Tensor], RowCodes]
seeds = st.integers(0, 2**31)


def drawn(seed: int, rows: int, columns: int) -> Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))


def value(codes: GroupCodes) -> Tensor:
    rows, columns = codes.codes.shape
    wide = codes.codes.float().view(rows, -1, codes.size)
    return (wide * codes.scale.unsqueeze(-1) + codes.minimum.unsqueeze(-1)).view(rows, columns)


def row_value(codes: RowCodes) -> Tensor:
    return codes.codes.float() * codes.scale.unsqueeze(1)


@given(rows=st.integers(1, 5), groups=st.integers(1, 4), seed=seeds)
def test_no_value_of_a_group_is_further_off_than_what_is_cut_from_its_range(rows: int, groups: int, seed: int) -> None:
    weight = drawn(seed, rows, 32 * groups)
    codes = in_groups(weight)
    span = weight.view(rows, groups, 32).amax(-1) - weight.view(rows, groups, 32).amin(-1)
    error = (value(codes) - weight).abs().view(rows, groups, 32).amax(-1)
    assert (error <= 0.1 * span + span / 30 + 1e-6).all()  # a tenth at either end, and half of a step
    assert codes.codes.dtype == torch.uint8
    assert int(codes.codes.max()) <= 15


@given(seed=seeds)
def test_a_narrower_range_is_taken_only_where_it_is_nearer(seed: int) -> None:
    weight = drawn(seed, 4, 64)
    groups = weight.view(4, 2, 32)
    low, high = groups.amin(-1, keepdim=True), groups.amax(-1, keepdim=True)
    step = (high - low) / 15
    plain = ((groups - low) / step).round() * step + low
    found = (value(in_groups(weight)) - weight).view(4, 2, 32).square().sum(-1)
    assert (found <= (plain - groups).square().sum(-1) + 1e-5).all()


@given(seed=seeds)
def test_values_that_lie_on_sixteen_even_steps_come_back(seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    codes = torch.randint(0, 16, (3, 64), generator=draw)
    codes[:, ::32], codes[:, 1::32] = 0, 15
    weight = codes.float() * 0.25 - 1.5
    torch.testing.assert_close(value(in_groups(weight)), weight)


def test_a_group_of_equal_values_keeps_them() -> None:
    weight = torch.full((2, 32), 0.75)
    torch.testing.assert_close(value(in_groups(weight)), weight)
    assert torch.equal(value(in_groups(torch.zeros(2, 32))), torch.zeros(2, 32))


@given(rows=st.integers(1, 9), columns=st.integers(1, 70), seed=seeds)
def test_no_value_of_a_row_is_further_off_than_half_a_step(rows: int, columns: int, seed: int) -> None:
    weight = drawn(seed, rows, columns)
    codes = in_rows(weight)
    assert ((row_value(codes) - weight).abs() <= 0.501 * codes.scale.unsqueeze(1)).all()
    torch.testing.assert_close(codes.scale * 127, weight.abs().amax(1))


@given(rows=st.integers(1, 9), columns=st.integers(1, 70), power=st.integers(-60, 60), seed=seeds)
def test_e4m3_is_off_by_a_sixteenth_of_each_value_at_most(rows: int, columns: int, power: int, seed: int) -> None:
    matrix = drawn(seed, rows, columns) * 2.0**power
    codes = in_float8_rows(matrix)
    least = 2.0**-10 * codes.scale.unsqueeze(1)  # half of the smallest step that e4m3 has
    assert ((row_value(codes) - matrix).abs() <= (2.0**-4 * matrix.abs()).maximum(least) * 1.001).all()
    torch.testing.assert_close(codes.scale * 448, matrix.abs().amax(1))


@pytest.mark.parametrize("coded", [in_rows, in_float8_rows])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_of_zeros_and_of_extremes_have_codes(coded: Coded, dtype: torch.dtype) -> None:
    limits = torch.finfo(dtype)
    rows = torch.tensor([[0.0, 0.0], [limits.max / 2, -1.0], [limits.min / 2, 1e30], [limits.tiny, -0.0]]).to(dtype)
    codes = coded(rows)
    torch.testing.assert_close(row_value(codes)[:3], rows[:3].float(), rtol=1e-3, atol=2.0**120)
    assert torch.equal(row_value(codes)[0], torch.zeros(2))
    assert (codes.scale >= torch.finfo(torch.float32).tiny).all()
    assert codes.codes.float().isfinite().all()


@given(power=st.integers(-100, 100), seed=seeds)
def test_no_quotient_needs_a_cast_that_saturates(power: int, seed: int) -> None:
    matrix = drawn(seed, 8, 5) * 2.0**power
    quotients = (matrix / in_float8_rows(matrix).scale.unsqueeze(1)).abs()
    assert float(quotients.max()) < 448.001  # what rounds to more than 448 begins at 464


@given(rows=st.integers(2, 9), columns=st.integers(1, 70), seed=seeds)
def test_a_row_has_the_same_codes_alone_and_beside_a_giant(rows: int, columns: int, seed: int) -> None:
    matrix = drawn(seed, rows, columns)
    matrix[1:] *= 1e4
    for coded in (in_rows, in_float8_rows):
        assert torch.equal(coded(matrix).codes[0].float(), coded(matrix[:1]).codes[0].float())
