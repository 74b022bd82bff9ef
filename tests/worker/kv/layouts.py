"""Writing KV into a slot and looking at it, whatever the layout."""

import torch
from torch import Tensor

from worker.kv import Layout, SlotLayout
from worker.rows import Row


def write(layout: Layout, slot: int, start: int, keys: Tensor, values: Tensor) -> None:
    """Writes KV [layers, tokens, kv heads, head_dim] from position start on, as a forward pass does."""
    layers, count, *_ = keys.shape
    attention = layout.attention([Row(slot, start, count)], [None] * layers)
    for layer in range(layers):
        attention.attend(layer, torch.zeros_like(keys[layer]), keys[layer], values[layer])


def written(layout: Layout, slot: int, end: int) -> tuple[Tensor, Tensor]:
    """The keys and values of the first `end` positions, [layers, tokens, kv heads, head_dim]."""
    assert isinstance(layout, SlotLayout)
    keys, values = layout.keys[:, slot, :, :, :end], layout.values[:, slot, :, :end]
    return keys.permute(0, 3, 1, 2), values.transpose(1, 2)
