"""Both layouts for tests, writing KV into a slot, and looking at it."""

from typing import TypeAlias

import torch
from torch import Tensor

from worker.kv import Layout, PagedLayout, SlotLayout
from worker.rows import Row

LayoutClass: TypeAlias = type[SlotLayout] | type[PagedLayout]
LAYOUTS: list[LayoutClass] = [SlotLayout, PagedLayout]


def write(layout: Layout, slot: int, start: int, keys: Tensor, values: Tensor) -> None:
    """Writes KV [layers, tokens, kv heads, head_dim] from position start on, as a forward pass does."""
    layers, count, *_ = keys.shape
    assert layout.prepare(slot, start, start + count)
    attention = layout.attention([Row(slot, start, count)], [None] * layers)
    for layer in range(layers):
        attention.attend(layer, torch.zeros_like(keys[layer]), keys[layer], values[layer])


def written(layout: Layout, slot: int, end: int) -> tuple[Tensor, Tensor]:
    """The keys and values of the first `end` positions, [layers, tokens, kv heads, head_dim]."""
    if isinstance(layout, SlotLayout):
        keys, values = layout.keys[:, slot], layout.values[:, slot]
    else:
        assert isinstance(layout, PagedLayout)
        keys, values = (part[layout.table(slot)] for part in layout.store.parts)  # [blocks, layers, kv heads, ..]
        keys = keys.permute(1, 2, 3, 0, 4).flatten(3)
        values = values.permute(1, 2, 0, 3, 4).flatten(2, 3)
    return keys[..., :end].permute(0, 3, 1, 2), values[:, :, :end].transpose(1, 2)
