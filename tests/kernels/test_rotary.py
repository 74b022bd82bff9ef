import cmath

import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels import Rotary, rotate

halves = st.integers(1, 16)


def frequencies(half: int) -> list[float]:
    return [10000.0 ** (-pair / half) for pair in range(half)]


@given(half=halves, heads=st.integers(1, 3), position=st.integers(0, 499), seed=st.integers(0, 2**31))
def test_each_pair_half_a_head_apart_turns_as_a_complex_number(half: int, heads: int, position: int, seed: int) -> None:
    x = torch.randn(1, heads, 2 * half, generator=torch.Generator().manual_seed(seed))
    cos, sin = Rotary(frequencies(half), 500, torch.float32).at(torch.tensor([position]))
    turned = rotate(x, cos, sin)
    for head in range(heads):
        for pair in range(half):
            angle = position * frequencies(half)[pair]
            number = complex(x[0, head, pair], x[0, head, pair + half]) * cmath.exp(1j * angle)
            assert abs(complex(turned[0, head, pair], turned[0, head, pair + half]) - number) < 1e-5


@given(start=st.integers(0, 300), apart=st.integers(0, 150), seed=st.integers(0, 2**31))
def test_a_score_depends_on_the_distance_alone(start: int, apart: int, seed: int) -> None:
    q, k = torch.randn(2, 1, 1, 32, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    rotary = Rotary(frequencies(16), 500, torch.float64)

    def score(at: int) -> float:
        return float(
            (rotate(q, *rotary.at(torch.tensor([at + apart]))) * rotate(k, *rotary.at(torch.tensor([at])))).sum()
        )

    assert abs(score(start) - score(0)) < 1e-9


def test_position_zero_is_not_turned() -> None:
    x = torch.randn(1, 2, 8)
    assert torch.equal(rotate(x, *Rotary(frequencies(4), 1, torch.float32).at(torch.tensor([0]))), x)


def test_an_amplitude_multiplies_what_is_turned() -> None:
    x, place = torch.randn(1, 2, 8), torch.tensor([3])
    plain, strong = (
        rotate(x, *Rotary(frequencies(4), 5, torch.float32, amplitude).at(place)) for amplitude in (1.0, 1.5)
    )
    torch.testing.assert_close(strong, 1.5 * plain)
