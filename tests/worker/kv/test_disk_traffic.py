"""Blocks on their way: who owns the bytes, and removals, waiters and threads that get in between."""

import random
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Event

import pytest
import torch

from tests.worker.kv.blocks import GLOBEX, chain, kv, same_bits
from tests.worker.kv.disks import (
    CHAIN,
    CHILD,
    FILE_BYTES,
    GRANDCHILD,
    ROOT,
    held_up,
    load,
    on_disk,
    opened,
    path_of,
    store,
)
from tests.worker.kv.tiered import PATIENCE_S
from worker.kv.blockfile import BlockFile
from worker.kv.disk import DiskTier
from worker.kv.folder import BlockFolder
from worker.kv.record import DiskRecord


def test_the_source_may_be_reused_at_once(tmp_path: Path) -> None:
    with opened(tmp_path) as (tier, _):
        with held_up(tier):
            keys, values = kv(3)
            promise = tier.store(ROOT, (keys, values))
            keys.fill_(torch.nan)
            values.fill_(torch.nan)
        assert promise.result()
        assert same_bits(load(tier, ROOT), kv(3))


def test_buffers_serve_in_and_out_of_inference_mode(tmp_path: Path) -> None:
    with opened(tmp_path, staged=1) as (tier, _):
        with torch.inference_mode():
            assert store(tier, ROOT, 1)
        assert store(tier, CHILD, 2)
        assert same_bits(load(tier, ROOT), kv(1))
        assert same_bits(load(tier, CHILD), kv(2))


def test_a_full_staging_refuses_at_once_and_recovers(tmp_path: Path) -> None:
    with opened(tmp_path, staged=2) as (tier, _):
        with held_up(tier):
            waiting = [tier.store(record, kv(0)) for record in CHAIN[:2]]
            refused = tier.store(GRANDCHILD, kv(0))
            assert refused.done()
            assert not refused.result()
            assert not any(promise.done() for promise in waiting)
        assert all(promise.result() for promise in waiting)
        assert tier.counters.refused == 1
        assert store(tier, GRANDCHILD)


def test_a_block_is_written_once(tmp_path: Path) -> None:
    with opened(tmp_path) as (tier, _):
        with held_up(tier):
            promises = [tier.store(ROOT, kv(0)) for _ in range(3)]
            assert not on_disk(tier, ROOT)
            assert load(tier, ROOT) is None
        assert all(promise.result() for promise in promises)
        assert tier.store(ROOT, kv(9)).result()
        assert tier.counters.stored == 1
        assert same_bits(load(tier, ROOT), kv(0))


def test_a_waiter_that_gives_up_takes_no_buffer_with_it(tmp_path: Path) -> None:
    with opened(tmp_path, staged=1) as (tier, _):
        with held_up(tier):
            promise = tier.store(ROOT, kv(0))
            assert not promise.cancel()
        assert promise.result()


def test_what_is_removed_is_gone_from_every_side(tmp_path: Path) -> None:
    with opened(tmp_path) as (tier, _):
        store(tier, ROOT)
        store(tier, CHILD)
        tier.remove(CHILD.digest)
        tier.remove(GRANDCHILD.digest)
        assert not on_disk(tier, CHILD)
        assert load(tier, CHILD) is None
        assert tier.take_dropped() == []
        assert tier.bytes_used == FILE_BYTES
    assert list(tmp_path.iterdir()) == [path_of(tmp_path, ROOT)]


def test_what_is_removed_while_on_its_way_never_arrives(tmp_path: Path) -> None:
    with opened(tmp_path) as (tier, _):
        with held_up(tier):
            promise = tier.store(ROOT, kv(0))
            tier.remove(ROOT.digest)
        assert not promise.result()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("step", ["write", "publish"])
def test_what_is_removed_while_it_is_written_never_arrives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    method = getattr(BlockFolder, step)
    with opened(tmp_path) as (tier, _):

        def write_and_be_unwanted(folder: BlockFolder, digest: bytes, *image: object) -> None:
            method(folder, digest, *image)
            tier.remove(digest)

        monkeypatch.setattr(BlockFolder, step, write_and_be_unwanted)
        assert not store(tier, ROOT)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("step", ["write", "publish", "remove"])
def test_nobody_else_waits_for_what_the_writer_asks_of_a_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    there, gate, method = Event(), Event(), getattr(BlockFolder, step)

    def slow(*arguments: object) -> None:
        there.set()
        assert gate.wait(2 * PATIENCE_S)
        method(*arguments)

    with opened(tmp_path, files=1) as (tier, _), ThreadPoolExecutor(1) as thread:
        store(tier, ROOT)
        monkeypatch.setattr(BlockFolder, step, slow)
        promise = tier.store(chain(1, first=50)[0], kv(1))
        assert there.wait(PATIENCE_S)
        try:
            assert thread.submit(tier.touch, ROOT.digest).exception(PATIENCE_S) is None
        finally:
            gate.set()
        assert promise.result()


def test_a_block_stored_again_after_its_removal_is_the_later_one(tmp_path: Path) -> None:
    with opened(tmp_path) as (tier, _):
        with held_up(tier):
            first = tier.store(ROOT, kv(1))
            tier.remove(ROOT.digest)
            second = tier.store(ROOT, kv(2))
        assert (first.result(), second.result()) == (False, True)
        assert same_bits(load(tier, ROOT), kv(2))
    assert list(tmp_path.iterdir()) == [path_of(tmp_path, ROOT)]


def test_an_end_that_was_not_told_is_not_told_of_a_later_copy(tmp_path: Path) -> None:
    with opened(tmp_path) as (tier, _):
        store(tier, ROOT, 1)
        path_of(tmp_path, ROOT).unlink()
        assert load(tier, ROOT) is None
        tier.remove(ROOT.digest)
        assert store(tier, ROOT, 2)
        assert tier.take_dropped() == []
        assert same_bits(load(tier, ROOT), kv(2))


def test_a_reader_that_met_an_old_bad_file_leaves_the_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def overtaken(folder: BlockFolder, digest: bytes, image: object) -> bool:
        tier.remove(digest)
        return not store(tier, ROOT, 2)

    with opened(tmp_path) as (tier, _):
        store(tier, ROOT, 1)
        with monkeypatch.context() as patch:
            patch.setattr(BlockFolder, "read", overtaken)
            assert load(tier, ROOT) is None
        assert tier.take_dropped() == []
        assert same_bits(load(tier, ROOT), kv(2))


def test_a_bug_in_the_writer_reaches_who_waits_and_frees_the_buffer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path, staged=1) as (tier, _):
        monkeypatch.setattr(BlockFile, "seal", None)
        with pytest.raises(TypeError, match="not callable"):
            store(tier, ROOT)
        monkeypatch.undo()
        assert store(tier, ROOT)


def test_tensors_of_another_shape_are_refused_and_free_the_buffer(tmp_path: Path) -> None:
    keys, values = kv(0)
    with opened(tmp_path, staged=1) as (tier, _):
        with pytest.raises(ValueError, match="a block of this model"):
            tier.store(ROOT, (keys[:1], values))
        assert store(tier, ROOT)


def one_step(tier: DiskTier, folder: Path, records: list[DiskRecord], draw: random.Random) -> None:
    """Does something to one of the blocks; the block at an index holds the KV of that seed, or is not found."""
    index = draw.randrange(len(records))
    record = records[index]
    match draw.choice(["store", "store and wait", "load", "load", "load", "remove", "damage"]):
        case "store":
            tier.store(record, kv(index))
        case "store and wait":
            store(tier, record, index)
        case "load":
            block = load(tier, record)
            assert block is None or same_bits(block, kv(index))
        case "remove":
            tier.remove(record.digest)
        case "damage":
            with suppress(FileNotFoundError), path_of(folder, record).open("r+b") as file:
                file.write(b"x")


@pytest.mark.parametrize("seed", range(4))
def test_many_threads_get_the_right_block_or_none(tmp_path: Path, seed: int) -> None:
    trunk = chain(8)
    records = [*trunk, *chain(8, after=trunk[3], first=60), *chain(8, namespace=GLOBEX)]

    def traffic(number: int) -> None:
        draw = random.Random(10 * seed + number)
        for _ in range(150):
            one_step(tier, tmp_path, records, draw)

    with opened(tmp_path, files=10, staged=3) as (tier, _):
        assert store(tier, ROOT, 0)
        assert same_bits(load(tier, ROOT), kv(0))
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(traffic, range(4)))  # raises what one of them raised
    files = {path.stem for path in tmp_path.iterdir()}
    assert {record.digest.hex() for record in records if on_disk(tier, record)} == files
    assert all(path.suffix == ".kv" for path in tmp_path.iterdir())
