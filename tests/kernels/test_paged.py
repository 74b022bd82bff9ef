import math
from collections.abc import Sequence

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from kernels import paged_attention, visible_positions, write_blocks
from tests.kernels.test_attention import naive

BLOCK, BLOCKS = 4, 24

windows = st.none() | st.integers(1, 30)


def pool(kv_heads: int, dim: int) -> tuple[Tensor, Tensor]:
    """Blocks of one layer of three, holding nothing."""
    keys = torch.full((BLOCKS, 3, kv_heads, dim, BLOCK), math.nan)
    return keys[:, 1], torch.full((BLOCKS, 3, kv_heads, BLOCK, dim), math.nan)[:, 1]


def put(pool: tuple[Tensor, Tensor], table: Sequence[int], k: Tensor, v: Tensor) -> None:
    positions = torch.arange(len(k))
    write_blocks(pool, torch.tensor(table)[positions // BLOCK], positions % BLOCK, k, v)


@given(
    lengths=st.lists(st.integers(1, 20), min_size=1, max_size=4),
    count=st.integers(1, 6),
    window=windows,
    kv_heads=st.integers(1, 3),
    fold=st.integers(1, 4),
    dim=st.sampled_from([4, 8]),
    order=st.permutations(range(BLOCKS)),
    seed=st.integers(0, 2**31),
)
def test_each_query_sees_its_own_sequence_up_to_its_position_wherever_the_blocks_are(
    lengths: list[int],
    count: int,
    window: int | None,
    kv_heads: int,
    fold: int,
    dim: int,
    order: list[int],
    seed: int,
) -> None:
    """What nobody wrote is not a number, and so are blocks of other sequences that a short table is filled up with."""
    draw = torch.Generator().manual_seed(seed)
    lengths = [max(length, count) for length in lengths]
    blocks, width = pool(kv_heads, dim), -(-max(lengths) // BLOCK)
    tables = [order[row * 5 : row * 5 + width] for row in range(len(lengths))]
    kv = [torch.randn(2, length, kv_heads, dim, generator=draw) for length in lengths]
    for table, (k, v) in zip(tables, kv, strict=True):
        put(blocks, table, k, v)
    q = torch.randn(len(lengths), count, kv_heads * fold, dim, generator=draw)
    starts = torch.tensor([length - count for length in lengths])
    visible = visible_positions(starts, count, width * BLOCK, window)
    mixed = paged_attention(q, blocks, torch.tensor(tables), visible)
    for row, (k, v) in enumerate(kv):
        for number in range(count):
            end = int(starts[row]) + number + 1
            begin = 0 if window is None else max(0, end - window)
            expected = naive(q[row, number], k[begin:end], v[begin:end])
            torch.testing.assert_close(mixed[row, number].double(), expected, atol=1e-5, rtol=1e-5)


def test_a_write_touches_its_own_places_only() -> None:
    keys, values = pool(1, 4)
    put((keys, values), [7, 2], torch.ones(5, 1, 4), torch.ones(5, 1, 4))
    assert (keys[7] == 1).all()
    assert (values[2, :, 0] == 1).all()
    assert values[2, :, 1:].isnan().all()
    assert keys[[block for block in range(BLOCKS) if block not in (7, 2)]].isnan().all()
