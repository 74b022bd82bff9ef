"""Every way of multiplying, against the same product in float64 of the weights that it stands for."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from kernels import (
    CodesProduct,
    DenseProduct,
    FloatProduct,
    GroupCodes,
    HalfProduct,
    Product,
    RowCodes,
    SideBySide,
)
from kernels.native import Native, Panels

sizes = st.integers(1, 130)
seeds = st.integers(0, 2**31)
NARROW = 2**-7  # relative, of the largest output: bfloat16 has 8 bits for activations, scales and results


def drawn(seed: int, *shapes: tuple[int, ...]) -> list[Tensor]:
    draw = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=draw) for shape in shapes]


def random_groups(seed: int, rows: int, columns: int, size: int, *, halves: bool = False) -> tuple[GroupCodes, Tensor]:
    """Codes, and the matrix that they stand for; factors that float16 holds, if asked for."""
    draw = torch.Generator().manual_seed(seed)
    codes = torch.randint(0, 16, (rows, columns), generator=draw, dtype=torch.uint8)
    scale = torch.rand(rows, columns // size, generator=draw) + 0.1
    minimum = -7.5 * scale + 0.1 * torch.randn(rows, columns // size, generator=draw)
    if halves:
        scale, minimum = scale.half().float(), minimum.half().float()
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


def assert_multiplies_rounded(product: Product, x: Tensor, weight: Tensor, size: int, bits: int) -> None:
    """Within what activations may have moved: half a step each, of which the largest of a group has 127 or 32,767."""
    moved = x.double().view(len(x), -1, size).abs().amax(-1) / (2 ** (bits - 1) - 1) / 2
    room = moved @ weight.double().abs().view(len(weight), -1, size).sum(-1).T
    summed = x.double().abs() @ weight.double().abs().T
    assert ((product(x).double() - x.double() @ weight.double().T).abs() <= 1.01 * room + 1e-6 * summed + 1e-6).all()


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


@given(rows=st.integers(1, 40), wide=sizes, groups=st.integers(1, 40), seed=seeds, halves=st.booleans())
@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("size", [16, 32])
def test_codes_of_four_bits_are_multiplied_as_they_are(
    size: int, bits: int, rows: int, wide: int, groups: int, seed: int, halves: bool, library: Native
) -> None:
    codes, weight = random_groups(seed, wide, size * groups, size, halves=halves)
    product = CodesProduct(library, codes.codes, codes.scale, codes.minimum, bits)
    assert_multiplies_rounded(product, drawn(seed, (rows, size * groups))[0], weight, size, bits)


@given(rows=st.integers(1, 40), wide=sizes, groups=st.integers(1, 40), seed=seeds, least=st.booleans())
@pytest.mark.parametrize("size", [16, 32])
def test_codes_of_eight_bits_take_activations_of_sixteen(
    size: int, rows: int, wide: int, groups: int, seed: int, least: bool, library: Native
) -> None:
    codes, weight = random_rows(seed, wide * groups, size)
    whole, scale = codes.codes.view(wide, -1), codes.scale.view(wide, groups)
    minimum = torch.randn(wide, groups, generator=torch.Generator().manual_seed(seed)) if least else None
    value = weight.view(wide, groups, size) + (0 if minimum is None else minimum.unsqueeze(-1))
    x = drawn(seed, (rows, size * groups))[0]
    for bits in (8, 16):
        product = CodesProduct(library, whole, scale, minimum, bits)
        assert_multiplies_rounded(product, x, value.view(wide, -1), size, 16)


@pytest.mark.parametrize("bits", [8, 16])
def test_every_code_and_every_sign_fits_into_the_sums(bits: int, library: Native) -> None:
    codes = torch.full((64, 32), 15, dtype=torch.uint8)
    product = CodesProduct(library, codes, torch.ones(64, 1), torch.zeros(64, 1), bits)
    for sign in (1.0, -1.0):
        torch.testing.assert_close(
            product(torch.full((7, 32), sign)), torch.full((7, 64), sign * 480), rtol=1e-6, atol=0
        )


@pytest.mark.parametrize("bits", [8, 16])
def test_a_group_of_huge_activations_takes_no_precision_from_the_others(bits: int, library: Native) -> None:
    codes, _ = random_groups(5, 64, 64, 32)
    codes.scale[:, 0] = codes.minimum[:, 0] = 0
    (x,) = drawn(6, (3, 64))
    x[:, :32] *= 1e6
    whole = CodesProduct(library, codes.codes, codes.scale, codes.minimum, bits)
    alone = CodesProduct(library, codes.codes[:, 32:], codes.scale[:, 1:], codes.minimum[:, 1:], bits)
    assert torch.equal(whole(x), alone(x[:, 32:]))


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("rows", [3, 20])
def test_what_is_no_number_spoils_its_row_and_what_is_nothing_gives_nothing(
    rows: int, bits: int, library: Native
) -> None:
    codes, _ = random_groups(7, 70, 64, 32)
    product = CodesProduct(library, codes.codes, codes.scale, codes.minimum, bits)
    (x,) = drawn(8, (rows, 64))
    x[0, 40], x[1, 3], x[2] = torch.nan, torch.inf, 1e-38
    y = product(x)
    assert not y[0].isfinite().any()
    assert not y[1].isfinite().any()
    assert y[2].tolist() == [0.0] * 70
    assert y[3:].isfinite().all()


@pytest.mark.parametrize("rows", [1, 2, 7, 33])
def test_activations_in_bfloat16_come_back_in_bfloat16(rows: int, library: Native) -> None:
    groups, grouped = random_groups(1, 32, 64, 32)
    x = drawn(rows, (rows, 64))[0].bfloat16()
    assert_multiplies(HalfProduct(grouped), x, grouped.half(), NARROW)
    assert_multiplies(CodesProduct(library, groups.codes, groups.scale, groups.minimum), x, grouped, NARROW)


def test_products_side_by_side_are_one_after_another() -> None:
    one, other, x = drawn(1, (5, 16), (3, 16), (4, 16))
    assert_multiplies(SideBySide([DenseProduct(one), DenseProduct(other)]), x, torch.cat((one, other)), 1e-6)


@pytest.mark.parametrize(("columns", "groups"), [(64, 1), (64, 8), (48, 5)])
def test_groups_that_the_kernel_does_not_take_are_refused(columns: int, groups: int) -> None:
    with pytest.raises(ValueError, match="groups of 16 or 32"):
        Panels(torch.zeros(4, columns, dtype=torch.uint8), torch.ones(4, groups), None)


@pytest.mark.parametrize("kind", [FloatProduct, HalfProduct])
def test_a_row_does_not_depend_on_its_neighbours(kind: type[FloatProduct] | type[HalfProduct]) -> None:
    weight, x = drawn(3, (96, 64), (33, 64))
    product = kind(0.1 * weight)
    whole = product(x)
    for row in range(33):
        torch.testing.assert_close(product(x[row : row + 1])[0], whole[row], atol=1e-5, rtol=0)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_row_of_coded_weights_is_bitwise_the_same_beside_others(threads: int, library: Native) -> None:
    (x,) = drawn(4, (41, 640))
    codes, _ = random_groups(2, 200, 640, 32)
    eight, _ = random_rows(2, 200 * 40, 16)
    products = [
        CodesProduct(library, codes.codes, codes.scale, codes.minimum, 8),
        CodesProduct(library, codes.codes, codes.scale, codes.minimum, 16),
        CodesProduct(library, eight.codes.view(200, 640), eight.scale.view(200, 40)),
    ]
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for product in products:
            whole = product(x)
            for first, count in ((0, 1), (3, 2), (7, 3), (11, 4), (16, 5), (21, 7), (25, 14)):
                assert torch.equal(product(x[first : first + count]), whole[first : first + count])
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("kind", [FloatProduct, HalfProduct])
def test_a_view_with_strides_is_packed_like_its_copy(kind: type[FloatProduct] | type[HalfProduct]) -> None:
    weight, x = drawn(5, (64, 48), (5, 64))
    assert torch.equal(kind(weight.T)(x), kind(weight.T.contiguous())(x))


def test_half_holds_what_does_not_overflow() -> None:
    assert HalfProduct.holds(torch.tensor([[65504.0, -1.0]]))
    assert not HalfProduct.holds(torch.tensor([[1.0, -65520.0]]))
