import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels import RMSNorm


@given(rows=st.integers(1, 9), width=st.integers(1, 200), scale=st.sampled_from([1e-3, 1.0, 1e3]), seed=st.integers(0))
def test_the_norm_divides_by_the_root_mean_square(rows: int, width: int, scale: float, seed: int) -> None:
    draw = torch.Generator().manual_seed(seed % 2**63)
    x, weight = scale * torch.randn(rows, width, generator=draw), torch.randn(width, generator=draw)
    wide = x.double()
    expected = wide / (wide.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * weight.double()
    torch.testing.assert_close(RMSNorm(weight, 1e-5)(x).double(), expected, atol=1e-5, rtol=1e-5)


def test_the_mean_of_squares_does_not_overflow_in_a_narrow_dtype() -> None:
    x = torch.full((1, 8), 3e4, dtype=torch.float16)
    assert torch.equal(RMSNorm(torch.ones(8), 1e-5)(x), torch.ones(1, 8, dtype=torch.float16))


def test_a_row_of_zeros_stays_zero() -> None:
    assert torch.equal(RMSNorm(torch.ones(4), 1e-5)(torch.zeros(1, 4)), torch.zeros(1, 4))
