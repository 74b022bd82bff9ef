"""Damaged, foreign and missing files, and a disk that says no: a miss each time, told once, and the worker goes on."""

import errno
import os
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import structlog
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worker.kv.blocks import GLOBEX, kv, same_bits
from tests.worker.kv.disks import (
    CHAIN,
    CHILD,
    FILE_BYTES,
    GRANDCHILD,
    ROOT,
    load,
    on_disk,
    opened,
    path_of,
    store,
)
from worker.kv.disk import DiskTier
from worker.kv.folder import BlockFolder
from worker.kv.record import DiskRecord


def lost(tier: DiskTier, record: DiskRecord) -> bool:
    """A load that finds nothing, says so once, and leaves nothing; the block can then be stored anew."""
    missed = load(tier, record) is None and not on_disk(tier, record)
    told = (tier.take_dropped(), tier.take_dropped()) == ([record.digest], [])
    missed_again = load(tier, record) is None and tier.take_dropped() == []
    return missed and told and missed_again and store(tier, record, 7) and same_bits(load(tier, record), kv(7))


@settings(max_examples=60)
@given(st.integers(0, FILE_BYTES - 1), st.integers(1, 255))
def test_any_changed_byte_is_a_miss(place: int, flip: int) -> None:
    with TemporaryDirectory() as name, opened(folder := Path(name)) as (tier, _):
        store(tier, ROOT)
        raw = bytearray(path_of(folder, ROOT).read_bytes())
        raw[place] ^= flip
        path_of(folder, ROOT).write_bytes(raw)
        assert lost(tier, ROOT)
        assert (tier.counters.corrupt, tier.counters.dropped) == (1, 1)


@settings(max_examples=40)
@given(st.integers(0, 2 * FILE_BYTES).filter(lambda size: size != FILE_BYTES))
def test_any_other_length_is_a_miss(size: int) -> None:
    with TemporaryDirectory() as name, opened(folder := Path(name)) as (tier, _):
        store(tier, ROOT)
        os.truncate(path_of(folder, ROOT), size)
        assert lost(tier, ROOT)


def test_a_file_that_went_away_is_a_miss(tmp_path: Path) -> None:
    with opened(tmp_path) as (tier, _):
        store(tier, ROOT)
        path_of(tmp_path, ROOT).unlink()
        assert lost(tier, ROOT)


def test_a_file_that_cannot_be_read_is_a_miss(tmp_path: Path) -> None:
    with structlog.testing.capture_logs() as logs, opened(tmp_path) as (tier, _):
        store(tier, ROOT)
        path_of(tmp_path, ROOT).unlink()
        path_of(tmp_path, ROOT).mkdir()
        assert load(tier, ROOT) is None
        assert tier.take_dropped() == [ROOT.digest]
    assert logs[0] == {"event": "kv disk failed", "doing": "read", "error": "EISDIR", "log_level": "warning"}


def test_another_block_under_the_same_digest_is_a_miss(tmp_path: Path) -> None:
    for asked in (
        replace(CHILD, edge=GRANDCHILD.edge),
        replace(CHILD, parent=GRANDCHILD.digest),
        replace(CHILD, edge=GLOBEX.key + CHILD.edge),
        replace(CHILD, lineage=GRANDCHILD.lineage),
    ):
        with opened(tmp_path) as (tier, _):
            store(tier, CHILD)
            assert load(tier, asked) is None
            assert tier.take_dropped() == [CHILD.digest]
        assert not path_of(tmp_path, CHILD).exists()


def test_a_full_disk_fails_the_store_and_says_so_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(folder: BlockFolder, digest: bytes, image: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with structlog.testing.capture_logs() as logs, opened(tmp_path) as (tier, _):
        with monkeypatch.context() as patch:
            patch.setattr(BlockFolder, "write", full)
            assert [store(tier, record) for record in CHAIN] == [False] * len(CHAIN)
        assert tier.counters.failed == len(CHAIN)
        assert store(tier, ROOT)
    assert logs == [{"event": "kv disk failed", "doing": "write", "error": "ENOSPC", "log_level": "warning"}]


def test_a_folder_that_cannot_be_made_turns_nothing_but_the_tier_off(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with structlog.testing.capture_logs() as logs, opened(tmp_path / "file" / "kv") as (tier, found):
        assert found == []
        assert not store(tier, ROOT)
        assert load(tier, ROOT) is None
        assert (tier.capacity, tier.counters.failed) == (0, 0)
    assert [(line["doing"], line["error"]) for line in logs] == [("scan", "ENOTDIR")]


def test_a_folder_that_disappears_is_lived_with(tmp_path: Path) -> None:
    with opened(tmp_path / "kv") as (tier, _):
        store(tier, ROOT)
        path_of(tmp_path / "kv", ROOT).unlink()
        (tmp_path / "kv").rmdir()
        assert not store(tier, CHILD)
        assert load(tier, ROOT) is None
