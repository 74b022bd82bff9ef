"""KV as codes of 8 bits: the laws of memory and tiers, a quarter of the bytes, and copies that lose nothing more."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import KVCodes
from tests.worker.kv.blocks import BLOCK, SHAPE, chain, kv, same_bits
from tests.worker.kv.disks import opened
from tests.worker.kv.layouts import (
    Fp8Pages,
    Fp8Slots,
    Fp8Tiles,
    Int8Pages,
    Int8Slots,
    Int8Tiles,
    kept_of,
    write,
    written,
)
from tests.worker.kv.test_memory import IndexIsCache
from tests.worker.kv.test_tiers import EveryTier
from worker.kv import KVShape, SlotLayout
from worker.kv.host import HostTier
from worker.kv.radix import NOWHERE
from worker.kv.store import BlockStore, copy_block

CPU = torch.device("cpu")
SMOL = KVShape(layers=30, kv_heads=3, head_dim=64, dtype=torch.float32)


class MemoryOverInt8Slots(IndexIsCache):
    layout = Int8Slots


class MemoryOverFp8Pages(IndexIsCache):
    layout = Fp8Pages


class TiersOverFp8Slots(EveryTier):
    layout = Fp8Slots


class TiersOverInt8Pages(EveryTier):
    layout, blocks = Int8Pages, 5


for machine in (MemoryOverInt8Slots, MemoryOverFp8Pages, TiersOverFp8Slots, TiersOverInt8Pages):
    machine.TestCase.settings = settings(max_examples=8, stateful_step_count=40, deadline=None)
TestMemoryOverInt8Slots, TestMemoryOverFp8Pages = MemoryOverInt8Slots.TestCase, MemoryOverFp8Pages.TestCase
TestTiersOverFp8Slots, TestTiersOverInt8Pages = TiersOverFp8Slots.TestCase, TiersOverInt8Pages.TestCase


@pytest.mark.parametrize("codes", ["int8", "fp8"])
def test_a_token_takes_a_quarter_of_its_bytes_in_every_tier(codes: KVCodes, tmp_path: Path) -> None:
    plain, coded = SMOL, SMOL.coded(codes)
    assert (plain.bytes_per_token, coded.bytes_per_token) == (46_080, 11_880)
    room = 64 * plain.bytes_per_token
    store = BlockStore(coded, blocks=2, block_size=16, device=CPU)
    assert sum(part.nbytes for part in store.block(1)) == 16 * coded.bytes_per_token
    assert HostTier(coded, 16, room).total == 15
    assert HostTier(plain, 16, room).total == 4
    with opened(tmp_path, shape=SHAPE.coded(codes)) as (tier, _):
        assert tier.file_bytes < 300 + SHAPE.coded(codes).bytes_per_token * BLOCK


@pytest.mark.parametrize("codes", ["int8", "fp8"])
def test_codes_come_back_from_disk_bit_for_bit(codes: KVCodes, tmp_path: Path) -> None:
    shape, (record,) = SHAPE.coded(codes), chain(1)
    with opened(tmp_path, shape=shape) as (tier, _):
        assert tier.store(record, kv(4, shape)).result()
        assert same_bits(tier.load(record).result(), kv(4, shape))


@pytest.mark.parametrize("layout_class", [Int8Slots, Int8Tiles, Fp8Slots, Fp8Tiles])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@settings(max_examples=15)
@given(seed=st.integers(0, 2**31))
def test_what_a_block_brings_is_what_was_computed_and_gives_the_same_block_again(
    layout_class: type[SlotLayout], dtype: torch.dtype, seed: int
) -> None:
    shape = replace(SHAPE, head_dim=16, dtype=dtype)
    layout = layout_class(shape, slots=2, context=16, blocks=4, block_size=4)
    draw = torch.Generator().manual_seed(seed)
    keys, values = torch.randn(2, shape.layers, 16, shape.kv_heads, 16, generator=draw).to(dtype)
    write(layout, 0, 0, keys, values)
    for found, given_ in zip(written(layout, 0, 16), (keys, values), strict=True):
        assert torch.equal(found, kept_of(layout, given_))
    first = layout.keep(0, 0, NOWHERE)
    assert first is not None
    layout.bring_in(1, 0, [first])
    for brought, computed in zip(written(layout, 1, 4), written(layout, 0, 4), strict=True):
        assert torch.equal(brought, computed)
    second = layout.keep(1, 0, NOWHERE)
    assert second is not None
    assert same_bits(layout.store.block(second), layout.store.block(first))


def test_a_spoiled_block_of_codes_is_not_a_number_anywhere() -> None:
    for codes in (torch.int8, torch.float8_e4m3fn):
        store = BlockStore(replace(SHAPE, codes=codes), blocks=2, block_size=BLOCK, device=CPU)
        store.spoil(1)
        values = tuple(torch.zeros(part.shape) for part in SHAPE.parts(BLOCK))
        copy_block(values, store.block(1))
        assert all(part.isnan().all() for part in values)
        copy_block(values, store.block(0))
        assert not any(part.any() for part in values)
