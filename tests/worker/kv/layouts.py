"""Both layouts for tests, with KV as it is computed or as codes, writing KV into a slot, and looking at it."""

from dataclasses import replace
from typing import Any, TypeAlias

import torch
from torch import Tensor

from kernels import as_values, rounded
from worker.kv import KVShape, Layout, PagedLayout, SlotLayout, kept_as
from worker.kv.tiled import TiledSlotLayout
from worker.rows import Row

LayoutClass: TypeAlias = type[SlotLayout] | type[PagedLayout]


class _Int8(Layout):
    def __init__(self, shape: KVShape, **sizes: Any) -> None:
        super().__init__(shape.coded("int8"), **sizes)


class _Fp8(Layout):
    def __init__(self, shape: KVShape, **sizes: Any) -> None:
        super().__init__(shape.coded("fp8"), **sizes)


class Int8Slots(_Int8, SlotLayout): ...


class Int8Pages(_Int8, PagedLayout): ...


class Int8Tiles(_Int8, TiledSlotLayout): ...


class Fp8Slots(_Fp8, SlotLayout): ...


class Fp8Pages(_Fp8, PagedLayout): ...


class Fp8Tiles(_Fp8, TiledSlotLayout): ...


class _Half(Layout):
    def __init__(self, shape: KVShape, **sizes: Any) -> None:
        super().__init__(kept_as("float16", shape, computed_in_c=True), **sizes)


class HalfSlots(_Half, SlotLayout): ...


class BrainPages(PagedLayout):
    """In bfloat16."""

    def __init__(self, shape: KVShape, **sizes: Any) -> None:
        super().__init__(replace(shape, dtype=torch.bfloat16), **sizes)


class TorchSlots(SlotLayout):
    """As where there is no C compiler."""

    @staticmethod
    def computed_in_c(shape: KVShape, device: torch.device) -> bool:  # noqa: ARG004
        return False


class HalfTiles(_Half, TiledSlotLayout): ...


LAYOUTS: list[LayoutClass] = [SlotLayout, PagedLayout]
CODED: list[LayoutClass] = [Int8Slots, Int8Pages, Fp8Slots, Fp8Pages]


def write(layout: Layout, slot: int, start: int, keys: Tensor, values: Tensor) -> None:
    """Writes KV [layers, tokens, kv heads, head_dim] from position start on, as a forward pass does."""
    layers, count, *_ = keys.shape
    if isinstance(layout, PagedLayout):
        keys, values = keys.to(layout.shape.dtype), values.to(layout.shape.dtype)
    assert layout.prepare(slot, start, start + count)
    attention = layout.attention([Row(slot, start, count)], [None] * layers)
    for layer in range(layers):
        attention.attend(layer, torch.zeros_like(keys[layer]), keys[layer], values[layer])


def written(layout: Layout, slot: int, end: int) -> tuple[Tensor, Tensor]:
    """The keys and values of the first `end` positions, [layers, tokens, kv heads, head_dim]."""
    if isinstance(layout, SlotLayout):
        keys, values = layout.keys[:, slot].transpose(2, 3).flatten(3), layout.values[:, slot]
    else:
        assert isinstance(layout, PagedLayout)
        blocks = [part[layout.table(slot)] for part in layout.store.parts]  # [blocks, layers, kv heads, ..]
        keys, values = as_values(blocks, layout.shape.dtype)
        keys = keys.permute(1, 2, 3, 0, 4).flatten(3)
        values = values.permute(1, 2, 0, 3, 4).flatten(2, 3)
    return keys[..., :end].permute(0, 3, 1, 2), values[:, :, :end].transpose(1, 2)


def kept_of(layout: Layout, x: Tensor) -> Tensor:
    """Keys or values [.., head_dim] as a slot has them that they were written into."""
    if layout.shape.codes is not None:
        return rounded(x, layout.shape.codes)
    limits = torch.finfo(layout.shape.dtype)
    return x.clamp(limits.min, limits.max).to(layout.shape.dtype)
