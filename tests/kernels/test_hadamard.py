import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels.hadamard import Hadamard

CPU = torch.device("cpu")
seeds = st.integers(0, 2**31)


@given(columns=st.integers(1, 300), seed=seeds)
def test_a_product_of_rotated_matrices_is_the_product_times_the_size(columns: int, seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    x, weight = (torch.randn(rows, columns, generator=draw, dtype=torch.float64) for rows in (3, 5))
    rotate = Hadamard(columns, torch.float64, CPU)
    torch.testing.assert_close(rotate(x) @ rotate(weight).T, rotate.size * (x @ weight.T))


@pytest.mark.parametrize(("columns", "size"), [(1, 1), (24, 8), (576, 64), (1536, 64), (33, 1)])
def test_a_block_is_the_largest_power_of_two_that_divides_the_columns(columns: int, size: int) -> None:
    assert Hadamard(columns, torch.float32, CPU).size == size


@pytest.mark.parametrize("at", [0, 63, 64, 100])
def test_one_large_value_is_shared_out_over_its_block(at: int) -> None:
    x = torch.zeros(1, 128)
    x[0, at] = 7
    block = at // 64
    shared = Hadamard(128, torch.float32, CPU)(x).view(2, 64)
    assert shared[block].abs().eq(7).all()
    assert shared[1 - block].eq(0).all()


def test_the_dtype_stays_and_a_view_is_rotated_like_its_copy() -> None:
    x = torch.randn(128, 4).bfloat16().T
    rotate = Hadamard(128, torch.bfloat16, CPU)
    assert rotate(x).dtype == torch.bfloat16
    assert torch.equal(rotate(x), rotate(x.contiguous()))
