"""Every way of multiplying, against the same product in float64 of the weights that it stands for."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from kernels import (
    DenseProduct,
    FloatProduct,
    GroupCodes,
    HalfProduct,
    Int4Product,
    Int8Product,
    Product,
    ProductByRows,
    RowCodes,
    UnpackedProduct,
)

sizes = st.integers(1, 130)
seeds = st.integers(0, 2**31)
NARROW = 2**-7  # relative, of the largest output: bfloat16 has 8 bits for activations, scales and results


def drawn(seed: int, *shapes: tuple[int, ...]) -> list[Tensor]:
    draw = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=draw) for shape in shapes]


def random_groups(seed: int, rows: int, columns: int, size: int) -> tuple[GroupCodes, Tensor]:
    """Codes, and the matrix that they stand for."""
    draw = torch.Generator().manual_seed(seed)
    codes = torch.randint(0, 16, (rows, columns), generator=draw, dtype=torch.uint8)
    scale = torch.rand(rows, columns // size, generator=draw) + 0.1
    minimum = -7.5 * scale + 0.1 * torch.randn(rows, columns // size, generator=draw)
    value = codes.float().view(rows, -1, size) * scale.unsqueeze(-1) + minimum.unsqueeze(-1)
    return GroupCodes(codes, scale, minimum, size), value.view(rows, columns)


def random_rows(seed: int, rows: int, columns: int) -> tuple[RowCodes, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    codes = torch.randint(-127, 128, (rows, columns), generator=draw, dtype=torch.int8)
    scale = torch.rand(rows, generator=draw) + 0.1
    return RowCodes(codes, scale), codes.float() * scale.unsqueeze(1)


def assert_multiplies(product: Product, x: Tensor, weight: Tensor, tolerance: float) -> None:
    """Within `tolerance` of what the sum of all terms' sizes could be, which is what rounding is relative to."""
    y, exact = product(x), x.double() @ weight.double().T
    assert y.dtype == x.dtype
    room = x.double().abs() @ weight.double().abs().T
    assert ((y.double() - exact).abs() <= tolerance * room + 1e-6).all()


@given(rows=sizes, wide=sizes, narrow=sizes, seed=seeds)
def test_float_weights_are_multiplied_in_their_own_dtype(rows: int, wide: int, narrow: int, seed: int) -> None:
    weight, x = drawn(seed, (wide, narrow), (rows, narrow))
    assert_multiplies(FloatProduct(weight), x, weight, 1e-6)


@given(rows=sizes, wide=sizes, narrow=sizes, seed=seeds)
def test_dense_weights_are_multiplied_in_their_own_dtype(rows: int, wide: int, narrow: int, seed: int) -> None:
    weight, x = drawn(seed, (wide, narrow), (rows, narrow))
    assert_multiplies(DenseProduct(weight), x, weight, 1e-6)
    assert_multiplies(DenseProduct(weight.bfloat16()), x.bfloat16(), weight.bfloat16(), NARROW)


@given(rows=sizes, wide=sizes, narrow=sizes, seed=seeds)
def test_half_weights_are_rounded_and_then_multiplied_in_float32(rows: int, wide: int, narrow: int, seed: int) -> None:
    weight, x = drawn(seed, (wide, narrow), (rows, narrow))
    assert_multiplies(HalfProduct(weight), x, weight.half(), 1e-6)


@given(rows=st.integers(1, 40), wide=st.integers(1, 8), groups=st.integers(1, 5), seed=seeds)
@pytest.mark.parametrize("size", [32, 64])
def test_int4_weights_are_their_codes_exactly(size: int, rows: int, wide: int, groups: int, seed: int) -> None:
    codes, weight = random_groups(seed, 16 * wide, size * groups, size)
    assert_multiplies(Int4Product(codes), drawn(seed, (rows, size * groups))[0], weight, NARROW)


@given(rows=st.integers(1, 40), wide=st.integers(1, 8), groups=st.integers(1, 5), seed=seeds)
def test_int8_weights_are_codes_times_the_scale_of_their_row(rows: int, wide: int, groups: int, seed: int) -> None:
    codes, weight = random_rows(seed, 16 * wide, 32 * groups)
    assert_multiplies(Int8Product(codes), drawn(seed, (rows, 32 * groups))[0], weight, NARROW)


@given(rows=sizes, wide=sizes, narrow=sizes, seed=seeds)
def test_unpacked_weights_are_multiplied_in_float32(rows: int, wide: int, narrow: int, seed: int) -> None:
    codes, weight = random_rows(seed, wide, narrow)
    assert_multiplies(UnpackedProduct(codes), drawn(seed, (rows, narrow))[0], weight, 1e-6)


def test_a_matrix_of_several_strips_is_one_matrix() -> None:
    codes, weight = random_rows(0, 9000, 32)
    assert_multiplies(UnpackedProduct(codes), drawn(0, (3, 32))[0], weight, 1e-6)


@pytest.mark.parametrize("rows", [1, 2, 7, 33])
def test_activations_in_bfloat16_come_back_in_bfloat16(rows: int) -> None:
    groups, grouped = random_groups(1, 32, 64, 32)
    whole, rowwise = random_rows(1, 32, 64)
    x = drawn(rows, (rows, 64))[0].bfloat16()
    assert_multiplies(HalfProduct(grouped), x, grouped.half(), NARROW)
    assert_multiplies(Int4Product(groups), x, grouped, NARROW)
    assert_multiplies(Int8Product(whole), x, rowwise, NARROW)
    assert_multiplies(UnpackedProduct(whole), x, rowwise, NARROW)


@pytest.mark.parametrize("kind", [FloatProduct, HalfProduct])
def test_a_row_does_not_depend_on_its_neighbours(kind: type[FloatProduct] | type[HalfProduct]) -> None:
    weight, x = drawn(3, (96, 64), (33, 64))
    product = kind(0.1 * weight)
    whole = product(x)
    for row in range(33):
        torch.testing.assert_close(product(x[row : row + 1])[0], whole[row], atol=1e-5, rtol=0)


def test_a_row_of_coded_weights_is_bitwise_the_same_beside_others() -> None:
    products: list[Product] = [Int4Product(random_groups(2, 96, 64, 32)[0]), Int8Product(random_rows(2, 96, 64)[0])]
    (x,) = drawn(4, (33, 64))
    for product in products:
        whole = product(x)
        assert all(torch.equal(product(x[row : row + 1])[0], whole[row]) for row in range(33))


@pytest.mark.parametrize("kind", [FloatProduct, HalfProduct])
def test_a_view_with_strides_is_packed_like_its_copy(kind: type[FloatProduct] | type[HalfProduct]) -> None:
    weight, x = drawn(5, (64, 48), (5, 64))
    assert torch.equal(kind(weight.T)(x), kind(weight.T.contiguous())(x))


def test_half_holds_what_does_not_overflow() -> None:
    assert HalfProduct.holds(torch.tensor([[65504.0, -1.0]]))
    assert not HalfProduct.holds(torch.tensor([[1.0, -65520.0]]))


def test_shapes_that_the_kernels_do_not_take_are_known() -> None:
    assert Int4Product.holds(16, 64, 32)
    assert not Int4Product.holds(24, 64, 32)
    assert not Int4Product.holds(16, 96, 64)
    assert Int8Product.holds(16, 32)
    assert not Int8Product.holds(16, 33)
    assert not Int8Product.holds(12, 32)


def test_the_number_of_rows_decides_between_two_packings() -> None:
    both = ProductByRows(lambda x: x + 1, lambda x: x + 2, most=2)
    assert [float(both(torch.zeros(rows, 1))[0]) for rows in (1, 2, 3)] == [1, 1, 2]
