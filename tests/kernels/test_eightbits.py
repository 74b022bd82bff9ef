"""What CUDA multiplies by in 8 bits, with the same numbers on the CPU."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from kernels import Float8Product, Product, RotatedInt8Product, in_float8_rows, in_rows
from kernels.hadamard import Hadamard

Coded = Callable[[Tensor], Product]
sizes = st.integers(1, 6)
counts = st.integers(1, 40)
seeds = st.integers(0, 2**31)


def drawn(seed: int, *shapes: tuple[int, ...]) -> list[Tensor]:
    draw = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=draw) for shape in shapes]


def float8(weight: Tensor) -> Float8Product:
    return Float8Product(in_float8_rows(weight))


def int8(weight: Tensor) -> RotatedInt8Product:
    return RotatedInt8Product(weight, torch.float32)


def error(product: Product, x: Tensor, weight: Tensor) -> float:
    """Of all results together, relative to them."""
    exact = x.double() @ weight.double().T
    return float((product(x).double() - exact).norm() / exact.norm())


@given(rows=counts, wide=sizes, narrow=sizes, seed=seeds)
def test_e4m3_is_the_product_of_its_codes_and_scales(rows: int, wide: int, narrow: int, seed: int) -> None:
    weight, x = drawn(seed, (16 * wide, 16 * narrow), (rows, 16 * narrow))
    left, right = in_float8_rows(x), in_float8_rows(weight)
    exact = left.codes.double() @ right.codes.double().T * left.scale.unsqueeze(1) * right.scale
    torch.testing.assert_close(float8(weight)(x).double(), exact, rtol=1e-5, atol=1e-5)


@given(rows=counts, wide=sizes, narrow=sizes, seed=seeds)
def test_int8_is_the_product_of_the_codes_of_what_was_rotated(rows: int, wide: int, narrow: int, seed: int) -> None:
    weight, x = drawn(seed, (8 * wide, 8 * narrow), (rows, 8 * narrow))
    rotate = Hadamard(8 * narrow, torch.float32, weight.device)
    left, right = in_rows(rotate(x)), in_rows(rotate(weight))
    sums = left.codes.long() @ right.codes.long().T
    exact = sums.double() * left.scale.unsqueeze(1) * right.scale / rotate.size
    torch.testing.assert_close(int8(weight)(x).double(), exact, rtol=1e-6, atol=1e-9)


@given(rows=st.integers(8, 40), seed=seeds)
def test_eight_bits_of_even_numbers_cost_a_few_hundredths(rows: int, seed: int) -> None:
    """On an average of at least 384 results: those of one row may be a third off it."""
    weight, x = drawn(seed, (48, 192), (rows, 192))
    assert 0.01 < error(float8(weight), x, weight) < 0.06
    assert 0.001 < error(int8(weight), x, weight) < 0.03


@given(at=st.integers(0, 191), size=st.sampled_from([20.0, 100.0]), seed=seeds)
def test_an_outlier_does_not_take_the_steps_of_the_others(at: int, size: float, seed: int) -> None:
    """Unrotated, all but the outlier would be zeros and ones: with weights that it does not meet, nothing is left."""
    weight, x = drawn(seed, (48, 192), (4, 192))
    weight[:, at], x[:, at] = 0, size
    plain = in_rows(x)
    lost = (plain.codes.float() * plain.scale.unsqueeze(1) - x).norm()
    kept = in_rows(Hadamard(192, torch.float32, x.device)(x))
    left = (kept.codes.float() * kept.scale.unsqueeze(1) - Hadamard(192, torch.float32, x.device)(x)).norm() / 8
    assert left < lost / 2
    assert error(int8(weight), x, weight) < 0.15


@given(rows=counts, seed=seeds, at=st.integers(0, 39))
def test_a_row_is_bitwise_the_same_alone_and_beside_any_others(rows: int, seed: int, at: int) -> None:
    """Of numbers whose rotation is exact in float32, as those of few bits are; the sums of codes are so always."""
    draw = torch.Generator().manual_seed(seed)
    (weight,) = drawn(seed, (24, 128))
    x = torch.randint(-1000, 1001, (rows, 128), generator=draw) * 2.0 ** torch.randint(-9, 9, (rows, 1), generator=draw)
    x[1:] *= 1e3  # neighbours that would set a scale of the whole batch
    product, row = int8(weight), at % rows
    assert torch.equal(product(x)[row], product(x[row : row + 1])[0])


@given(rows=counts, seed=seeds, at=st.integers(0, 39))
def test_neighbours_move_a_row_no_further_than_rounding_does(rows: int, seed: int, at: int) -> None:
    weight, x = drawn(seed, (32, 128), (rows, 128))
    x[1:] *= 1e3
    row = at % rows
    for product in (float8(weight), int8(weight)):
        alone = product(x[row : row + 1])[0]
        assert (product(x)[row] - alone).norm() <= 2e-3 * alone.norm()


@pytest.mark.parametrize("rows", [1, 16, 17, 31, 32, 33])
def test_the_kernel_for_integers_never_sees_few_rows(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA takes 17 and more."""
    multiply, seen = torch._int_mm, []

    def watched(codes: Tensor, weight: Tensor) -> Tensor:
        seen.append(len(codes))
        return multiply(codes, weight)

    monkeypatch.setattr(torch, "_int_mm", watched)
    assert int8(torch.randn(16, 32))(torch.randn(rows, 32)).shape == (rows, 16)
    assert seen == [max(32, rows)]


@pytest.mark.parametrize("rows", [1, 3, 40])
def test_the_kernel_for_e4m3_takes_what_it_is_given_on_cuda(rows: int) -> None:
    """By torch's own checks of dtypes, strides and scales, on tensors that only say that they are on CUDA."""
    cuda = torch.device("cuda", 0)
    with FakeTensorMode():
        product = float8(torch.empty(48, 64, device=cuda))
        y = product(torch.empty(rows, 64, device=cuda, dtype=torch.bfloat16))
        assert (y.shape, y.dtype, y.device) == ((rows, 48), torch.bfloat16, cuda)
        with pytest.raises(RuntimeError, match="divisible by 16"):
            float8(torch.empty(40, 64, device=cuda))(torch.empty(rows, 64, device=cuda, dtype=torch.bfloat16))


@pytest.mark.parametrize("product", [float8, int8])
def test_zeros_give_zeros(product: Coded) -> None:
    weight, x = drawn(1, (32, 64), (5, 64))
    weight[3], x[2] = 0, 0
    y = product(weight)(x)
    assert torch.equal(y[2], torch.zeros(32))
    assert torch.equal(y[:, 3], torch.zeros(5))
    assert y.isfinite().all()
    assert y[0].abs().sum() > 0


@pytest.mark.parametrize("product", [float8, int8])
@pytest.mark.parametrize("power", [-40, 40])
def test_scales_carry_whatever_size_there_is(product: Coded, power: int) -> None:
    weight, x = drawn(2, (32, 64), (5, 64))
    assert torch.equal(product(weight)(x * 2.0**power), product(weight)(x) * 2.0**power)
    assert torch.equal(product(weight * 2.0**power)(x), product(weight)(x) * 2.0**power)


def test_the_largest_sum_of_integers_fits() -> None:
    """One value in each block is turned into 64 of one size, so every code is the largest."""
    spikes = torch.zeros(8, 2**17)
    spikes[:, ::64] = 1
    torch.testing.assert_close(int8(spikes)(spikes[:1]), torch.full((1, 8), 2.0**11))


def test_activations_in_bfloat16_come_back_in_bfloat16() -> None:
    weight, x = drawn(3, (32, 64), (5, 64))
    for product in (float8(weight), RotatedInt8Product(weight, torch.bfloat16)):
        y = product(x.bfloat16())
        assert y.dtype == torch.bfloat16
        assert (y.float() - x @ weight.T).norm() < 0.06 * (x @ weight.T).norm()


def test_shapes_that_the_kernels_do_not_take_are_known() -> None:
    assert Float8Product.holds(16, 32)
    assert not Float8Product.holds(24, 32)
    assert not Float8Product.holds(16, 40)
    assert RotatedInt8Product.holds(8, 24)
    assert not RotatedInt8Product.holds(12, 24)
    assert not RotatedInt8Product.holds(8, 12)
    assert RotatedInt8Product.holds(8, 133_144)
    assert not RotatedInt8Product.holds(8, 133_152)  # its largest sum would not fit 32 bits
