"""What KV is kept as when one thing or another is asked for."""

from dataclasses import replace

import pytest
import torch

from worker.kv import KINDS, KVShape, SlotLayout, kept_as
from worker.kv.layout import CPU
from worker.kv.tiled import TiledSlotLayout

SHAPE = KVShape(layers=2, kv_heads=2, head_dim=16, dtype=torch.float32)


def test_auto_is_half_of_float32_where_kernels_in_c_attend_and_nothing_else_elsewhere() -> None:
    assert kept_as("auto", SHAPE, computed_in_c=True).bytes_per_token == SHAPE.bytes_per_token / 2
    assert kept_as("auto", SHAPE, computed_in_c=False) == SHAPE


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "auto"])
def test_what_is_asked_for_by_name_is_what_one_gets(kind: str) -> None:
    assert kept_as(kind, SHAPE, computed_in_c=True).kind == kind


def test_what_cannot_be_had_is_refused() -> None:
    with pytest.raises(ValueError, match="kv-dtype float16 needs slots on a CPU"):
        kept_as("float16", SHAPE, computed_in_c=False)
    with pytest.raises(ValueError, match="kv-dtype float32 needs dtype float32"):
        kept_as("float32", replace(SHAPE, dtype=torch.bfloat16), computed_in_c=False)


@pytest.mark.parametrize("layout", [SlotLayout, TiledSlotLayout])
def test_kernels_in_c_know_float32_and_float16_on_the_cpu(layout: type[SlotLayout]) -> None:
    found = {
        dtype: layout.computed_in_c(replace(SHAPE, dtype=dtype), CPU)
        for dtype in (torch.float32, torch.float16, torch.bfloat16)
    }
    assert found == {torch.float32: True, torch.float16: True, torch.bfloat16: False}
    assert not layout.computed_in_c(replace(SHAPE, head_dim=12), CPU)
    assert not layout.computed_in_c(SHAPE, torch.device("cuda"))


@pytest.mark.usefixtures("without_native")
def test_without_a_compiler_nothing_is_computed_in_c() -> None:
    assert not SlotLayout.computed_in_c(SHAPE, CPU)
