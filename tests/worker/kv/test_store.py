"""The KV of blocks: every part in its place, and copies that change no bit."""

import psutil
import pytest
import torch

from worker.kv.shape import KVShape
from worker.kv.store import BlockStore, copy_block, reserve

SHAPE = KVShape(layers=2, kv_heads=3, head_dim=4, dtype=torch.float32)
CPU = torch.device("cpu")


def test_a_block_has_the_parts_of_its_shape() -> None:
    store = BlockStore(SHAPE, blocks=5, block_size=8, device=CPU)
    assert [part.shape for part in store.block(4)] == [(2, 3, 4, 8), (2, 3, 8, 4)]
    assert sum(part.nbytes for part in store.block(4)) == SHAPE.bytes_per_token * 8


def test_bytes_per_token_count_keys_and_values_of_all_layers() -> None:
    assert SHAPE.bytes_per_token == 2 * 2 * 3 * 4 * 4


def test_a_spoiled_block_is_not_a_number_anywhere() -> None:
    store = BlockStore(SHAPE, blocks=4, block_size=8, device=CPU)
    store.spoil(3)
    assert all(part.isnan().all() for part in store.block(3))
    assert not any(part.isnan().any() for part in store.block(2))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8])
def test_a_copy_keeps_every_bit_whatever_the_strides(dtype: torch.dtype) -> None:
    size = dtype.itemsize
    source = torch.randint(0, 256, (3, 4, 6 * size), dtype=torch.uint8).view(dtype)
    into = torch.zeros(3, 10, 6, dtype=dtype)
    copy_block((into[:, 2:6],), (source,))
    assert torch.equal(into[:, 2:6].contiguous().view(torch.uint8), source.view(torch.uint8))
    assert not into[:, 6:].any()


def test_a_block_of_another_shape_is_refused() -> None:
    with pytest.raises(ValueError, match="broadcast"):
        copy_block((torch.zeros(2, 3),), (torch.zeros(2, 2),))


def test_a_few_tokens_of_a_long_slot_take_little_memory() -> None:
    """A column of rows of 128 KiB: 4 MiB in pages of the usual size, and in huge ones all 128 MiB."""
    process = psutil.Process()
    rows = reserve((1024, 32768), torch.float32, torch.device("cpu"))
    before = process.memory_info().rss
    rows[:, 5] = 1.0
    assert process.memory_info().rss - before < 32 << 20
    assert rows[7, 4:7].tolist() == [0, 1, 0]
