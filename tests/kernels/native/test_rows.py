"""What C does to single rows, against the same in float64."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from kernels.native import Native

seeds = st.integers(0, 2**31)


def drawn(seed: int, *shape: int, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@given(rows=st.integers(0, 5), heads=st.integers(1, 4), eights=st.integers(1, 9), seed=seeds)
def test_heads_may_have_a_weight_each(rows: int, heads: int, eights: int, seed: int, library: Native) -> None:
    x, weight = drawn(seed, rows, heads, 8 * eights, scale=10), drawn(seed + 1, heads, 8 * eights)
    wide = x.double()
    expected = wide / (wide.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt() * weight.double()
    torch.testing.assert_close(library.norm(x, weight, 1e-6).double(), expected, atol=1e-5, rtol=1e-5)


@given(rows=st.integers(0, 5), eights=st.integers(1, 9), scale=st.sampled_from([1e-6, 1.0, 30.0, 1e4]), seed=seeds)
def test_the_gate_is_right_near_zero_and_far_from_it(
    rows: int, eights: int, scale: float, seed: int, library: Native
) -> None:
    x = drawn(seed, rows, 16 * eights, scale=scale)
    gate, rest = x.double().chunk(2, dim=-1)
    expected = gate * gate.sigmoid() * rest
    torch.testing.assert_close(
        library.gate(x).double(), expected, atol=1e-28, rtol=2e-6
    )  # e to the -87 is as little as there is


def test_a_gate_that_is_no_number_lets_none_through(library: Native) -> None:
    x = torch.zeros(1, 16)
    x[0, 3] = torch.nan
    assert library.gate(x).isnan().tolist() == [[False] * 3 + [True] + [False] * 4]


@given(rows=st.integers(1, 4), heads=st.integers(1, 3), more=st.integers(0, 2), sixteens=st.integers(1, 4), seed=seeds)
def test_heads_are_rotated_out_of_a_wider_tensor(
    rows: int, heads: int, more: int, sixteens: int, seed: int, library: Native
) -> None:
    dim = 16 * sixteens
    x = drawn(seed, rows, heads + more, dim)[:, :heads]
    cos, sin = drawn(seed + 1, rows, 1, dim), drawn(seed + 2, rows, 1, dim)
    expected = x * cos + x.roll(dim // 2, dims=-1) * sin
    torch.testing.assert_close(library.rotate(x, cos, sin), expected, atol=1e-6, rtol=1e-5)
