"""Attention over a layout: where the tensors are that it makes."""

import torch

from worker.kv import KVShape, PagedLayout
from worker.rows import Row


def test_over_pages_nothing_is_on_another_device_than_the_pool() -> None:
    """On the device without memory any product with a tensor of the CPU fails."""
    meta = torch.device("meta")
    shape = KVShape(layers=2, kv_heads=2, head_dim=8, dtype=torch.bfloat16)
    layout = PagedLayout(shape, slots=2, context=64, blocks=8, block_size=8, device=meta)
    for slot in range(2):
        layout.slots.take()
        assert layout.prepare(slot, 0, 20)
    attention = layout.attention([Row(0, 15, 1), Row(1, 0, 12)], [None, 4])
    q, k = torch.zeros(13, 4, 8, dtype=shape.dtype, device=meta), torch.zeros(13, 2, 8, dtype=shape.dtype, device=meta)
    for layer in range(shape.layers):
        mixed = attention.attend(layer, q, k, k)
        assert (mixed.device, mixed.shape) == (meta, q.shape)
