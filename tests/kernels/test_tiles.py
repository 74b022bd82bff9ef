"""Products by tiles: a row's result does not depend on the rows around it."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels import FloatProduct, TiledProduct

WIDTH = 96
torch.manual_seed(0)
WEIGHT = torch.randn(160, WIDTH)
TILED = TiledProduct(FloatProduct(WEIGHT), 16)


@given(rows=st.integers(1, 70), before=st.integers(0, 40), seed=st.integers(0, 2**31))
def test_a_row_is_the_same_bit_by_bit_in_any_company(rows: int, before: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    row = torch.randn(1, WIDTH, generator=generator)
    company = torch.randn(rows + before, WIDTH, generator=generator)
    company[before] = row
    assert torch.equal(TILED(company)[before], TILED(row)[0])


def test_it_is_the_product() -> None:
    x = torch.randn(37, WIDTH)
    torch.testing.assert_close(TILED(x), x @ WEIGHT.T, atol=1e-4, rtol=0)
