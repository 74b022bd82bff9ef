"""What a restart finds, and what it removes."""

import os
import random
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worker.kv.blocks import BLOCK, GLOBEX, SHAPE, chain, kv, same_bits
from tests.worker.kv.disks import CHAIN, CHILD, FILE_BYTES, GRANDCHILD, MODEL, ROOT, load, opened, path_of, store
from worker.kv import blockfile
from worker.kv.blockfile import BlockFile
from worker.kv.shape import KVShape


def test_a_restart_serves_what_was_stored_and_knows_parents_first(tmp_path: Path) -> None:
    branch = chain(3, after=CHILD, first=50)
    order = [*CHAIN, *branch, *chain(2, namespace=GLOBEX)]
    random.Random(5).shuffle(order)
    with opened(tmp_path) as (tier, found):
        assert found == []
        for seed, record in enumerate(order):
            assert store(tier, record, seed)
    with opened(tmp_path) as (tier, found):
        known: set[bytes | None] = {None}
        for record in found:
            assert record.parent in known
            known.add(record.digest)
        assert set(found) == set(order)
        assert tier.bytes_used == len(order) * FILE_BYTES
        assert all(same_bits(load(tier, record), kv(seed)) for seed, record in enumerate(order))


def test_a_restart_removes_what_has_no_way_to_a_root(tmp_path: Path) -> None:
    with opened(tmp_path) as (tier, _):
        for record in CHAIN:
            store(tier, record)
        tier.remove(GRANDCHILD.digest)
    with opened(tmp_path) as (tier, found):
        assert found == [ROOT, CHILD]
        assert tier.take_dropped() == []
    assert len(list(tmp_path.iterdir())) == 2


def test_a_restart_removes_what_is_damaged_foreign_or_half_written_and_nothing_else(tmp_path: Path) -> None:
    with opened(tmp_path) as (tier, _):
        for record in CHAIN[:4]:
            store(tier, record)
    path_of(tmp_path, CHAIN[3]).write_bytes(b"")
    path_of(tmp_path, CHAIN[2]).rename(path_of(tmp_path, CHAIN[4]))
    path_of(tmp_path, ROOT).with_suffix(".tmp").write_bytes(b"half")
    (tmp_path / "notes.txt").write_text("an operator's own")
    with opened(tmp_path) as (tier, found):
        assert found == [ROOT, CHILD]
        assert tier.counters.corrupt == 2
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".kv", ".kv", ".txt"]


@settings(max_examples=40)
@given(st.integers(0, BlockFile(SHAPE, BLOCK, MODEL).head_size - 1), st.integers(1, 255))
def test_a_damaged_head_never_becomes_a_record(place: int, flip: int) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        with opened(folder) as (tier, _):
            store(tier, ROOT)
        raw = bytearray(path_of(folder, ROOT).read_bytes())
        raw[place] ^= flip
        path_of(folder, ROOT).write_bytes(raw)
        with opened(folder) as (_, found):
            assert found == []
        assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("shape", "model"),
    [(SHAPE, "e" * 32), (replace(SHAPE, layers=1, kv_heads=2), MODEL), (replace(SHAPE, dtype=torch.bfloat16), MODEL)],
    ids=["model", "dimensions", "dtype"],
)
def test_another_model_finds_nothing(tmp_path: Path, shape: KVShape, model: str) -> None:
    with opened(tmp_path) as (tier, _):
        store(tier, ROOT)
    with opened(tmp_path, shape=shape, model=model) as (tier, found):
        assert found == []
        assert load(tier, ROOT) is None
    assert list(tmp_path.iterdir()) == []


def test_files_of_an_older_format_are_removed(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blockfile, "_VERSION", 1)
        with opened(tmp_path) as (tier, _):
            store(tier, ROOT)
    with opened(tmp_path) as (tier, found):
        assert found == []
        assert load(tier, ROOT) is None
    assert list(tmp_path.iterdir()) == []


def test_a_smaller_tier_keeps_what_was_used_last(tmp_path: Path) -> None:
    old, new = chain(3), chain(2, first=80)
    with opened(tmp_path) as (tier, _):
        for record in [*new, *old]:
            store(tier, record)
    for age, record in enumerate([*new, *old]):
        os.utime(path_of(tmp_path, record), ns=(age, age))
    with opened(tmp_path) as (tier, _):
        assert load(tier, new[0])
        assert load(tier, new[1])
    with opened(tmp_path, files=3) as (tier, found):
        assert set(found) == {*new, old[0]}
