"""The disk tier on real files: what it answers, what it keeps, and what it says to misuse."""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worker.kv.blocks import BLOCK, GLOBEX, SHAPE, chain, kv, same_bits
from tests.worker.kv.disks import CHAIN, CHILD, FILE_BYTES, MODEL, ROOT, held_up, load, on_disk, opened, store
from worker.kv.disk import DiskTier


@settings(max_examples=20)
@given(st.sampled_from([torch.float32, torch.bfloat16, torch.float16]), st.integers(0, 2**31))
def test_a_block_comes_back_bit_for_bit(dtype: torch.dtype, seed: int) -> None:
    shape = replace(SHAPE, dtype=dtype)
    with TemporaryDirectory() as folder, opened(Path(folder), shape=shape) as (tier, _):
        assert tier.store(ROOT, kv(seed, shape)).result()
        assert on_disk(tier, ROOT)
        assert same_bits(load(tier, ROOT), kv(seed, shape))
        assert (tier.counters.stored, tier.counters.loaded) == (1, 1)


def test_equal_tokens_of_two_namespaces_never_meet(tmp_path: Path) -> None:
    mine, theirs = chain(3), chain(3, namespace=GLOBEX)
    with opened(tmp_path) as (tier, _):
        for seed, record in enumerate(mine):
            assert store(tier, record, seed)
        assert all(load(tier, record) is None for record in theirs)
        assert all(same_bits(load(tier, record), kv(seed)) for seed, record in enumerate(mine))
        forged = replace(theirs[0], digest=mine[0].digest)
        assert load(tier, forged) is None


def test_a_chain_that_arrives_leaf_first_also_keeps_its_beginning(tmp_path: Path) -> None:
    with opened(tmp_path, files=3) as (tier, _):
        assert all(store(tier, record) for record in reversed(CHAIN))
        assert tier.take_dropped() == [record.digest for record in reversed(CHAIN[3:])]
    with opened(tmp_path, files=3) as (_, found):
        assert found == CHAIN[:3]


@settings(max_examples=25)
@given(st.lists(st.integers(0, 11), min_size=1, max_size=40), st.integers(1, 5))
def test_capacity_is_kept_and_each_dropped_block_is_told_once(order: list[int], files: int) -> None:
    trunk = chain(6)
    records = [*trunk, *chain(6, after=trunk[2], first=60)]
    with TemporaryDirectory() as name:
        folder = Path(name)
        present: set[bytes] = set()
        with opened(folder, files) as (tier, _):
            for index in order:
                if store(tier, records[index], index):
                    present.add(records[index].digest)
                for digest in tier.take_dropped():
                    present.remove(digest)
                sizes = [path.stat().st_size for path in folder.iterdir()]
                assert sum(sizes) == tier.bytes_used == len(present) * FILE_BYTES
                assert len(sizes) <= files
            for index, record in enumerate(records):
                assert on_disk(tier, record) == (record.digest in present)
                assert (load(tier, record) is not None) == (record.digest in present)
                assert record.digest not in present or same_bits(load(tier, record), kv(index))


def test_a_chain_longer_than_the_tier_keeps_its_beginning(tmp_path: Path) -> None:
    with opened(tmp_path, files=3) as (tier, _):
        assert [store(tier, record) for record in CHAIN[:4]] == [True, True, True, False]
        assert tier.counters.refused == 1
    with opened(tmp_path, files=3) as (_, found):
        assert found == CHAIN[:3]


def test_what_is_loaded_stays_longer(tmp_path: Path) -> None:
    one, two, three = (chain(1, first=first)[0] for first in (0, 20, 40))
    with opened(tmp_path, files=2) as (tier, _):
        assert store(tier, one)
        assert store(tier, two)
        assert load(tier, one)
        assert store(tier, three)
        assert tier.take_dropped() == [two.digest]


def test_what_is_about_to_be_loaded_stays_longer(tmp_path: Path) -> None:
    one, other, third = (chain(1, first=first)[0] for first in (0, 10, 20))
    with opened(tmp_path, files=2) as (tier, _):
        assert store(tier, one)
        assert store(tier, other)
        tier.touch(one.digest)
        tier.touch(third.digest)  # which is not here
        assert store(tier, third)
        assert tier.take_dropped() == [other.digest]


def test_what_is_stored_again_stays_longer(tmp_path: Path) -> None:
    one, two, three = (chain(1, first=first)[0] for first in (0, 20, 40))
    with opened(tmp_path, files=2) as (tier, _):
        assert all(store(tier, record) for record in (one, two, one, three))
        assert tier.take_dropped() == [two.digest]


def test_the_lowest_priority_makes_room_first_as_it_was_told_last(tmp_path: Path) -> None:
    old, low, raised, new, last = (chain(1, first=first)[0] for first in (0, 20, 40, 60, 80))
    with opened(tmp_path, files=3) as (tier, _):
        for record, priority in ((old, 90), (low, 35), (raised, 20)):
            assert tier.store(record, kv(0), priority).result()
        tier.rank(raised.digest, 60)
        tier.rank(new.digest, 1)  # which is not here
        assert tier.store(new, kv(0), 35).result()
        assert tier.take_dropped() == [low.digest]
        assert [tier.priority(record.digest) for record in (old, low, raised, new)] == [90, None, 60, 35]
        tier.rank(old.digest, 35)  # its lease is over: as old as it is, it goes before what came later
        assert store(tier, last)
        assert tier.take_dropped() == [old.digest]


def test_a_priority_that_changes_while_a_block_is_written_is_that_of_its_file(tmp_path: Path) -> None:
    with opened(tmp_path) as (tier, _):
        with held_up(tier):
            promise = tier.store(ROOT, kv(0), 90)
            tier.rank(ROOT.digest, 10)
        assert promise.result()
        assert tier.priority(ROOT.digest) == 10


def test_what_nobody_comes_back_to_goes_before_what_is_older(tmp_path: Path) -> None:
    one, two, three = (chain(1, first=first)[0] for first in (0, 20, 40))
    with opened(tmp_path, files=2) as (tier, _):
        assert all(store(tier, record) for record in (one, two))
        tier.give_up(two.digest)
        tier.give_up(three.digest)  # which is not here
        assert store(tier, three)
        assert tier.take_dropped() == [two.digest]


def test_closing_waits_for_what_is_written_and_keeps_it(tmp_path: Path) -> None:
    with opened(tmp_path) as (tier, _):
        promises = [tier.store(record, kv(0)) for record in CHAIN]
    assert all(promise.result() for promise in promises)
    assert not store(tier, chain(1, first=70)[0])
    assert load(tier, ROOT) is None
    tier.remove(ROOT.digest)
    assert len(list(tmp_path.iterdir())) == len(CHAIN)


@pytest.mark.parametrize("capacity", [0, FILE_BYTES - 1])
def test_without_room_for_a_file_the_tier_is_off_and_touches_nothing(tmp_path: Path, capacity: int) -> None:
    tier = DiskTier(tmp_path / "kv", SHAPE, BLOCK, capacity, MODEL)
    assert tier.scan() == []
    assert not store(tier, ROOT)
    assert load(tier, ROOT) is None
    tier.remove(ROOT.digest)
    tier.close()
    assert (tier.bytes_used, on_disk(tier, ROOT), tier.take_dropped()) == (0, False, [])
    assert list(tmp_path.iterdir()) == []


def test_a_tier_is_scanned_first_and_once(tmp_path: Path) -> None:
    tier = DiskTier(tmp_path, SHAPE, BLOCK, FILE_BYTES, MODEL)
    with pytest.raises(RuntimeError, match="scanned first"):
        tier.store(ROOT, kv(0))
    with pytest.raises(RuntimeError, match="scanned first"):
        tier.load(ROOT)
    tier.scan()
    with pytest.raises(RuntimeError, match="once"):
        tier.scan()
    tier.close()


def test_books_that_lie_are_found(tmp_path: Path) -> None:
    tier = DiskTier(tmp_path, SHAPE, BLOCK, FILE_BYTES, MODEL)
    tier.scan()
    ticket = tier._admit(ROOT, 35)
    assert ticket is not None
    tier._staging.give_back(ticket.image)
    with pytest.raises(RuntimeError, match="no buffer"):
        tier.check()
    tier._shelf.add(ROOT.digest, None, 35)
    with pytest.raises(RuntimeError, match="on its way"):
        tier.check()
    tier._shelf.add(CHILD.digest, ROOT.digest, 35)
    with pytest.raises(RuntimeError, match="more files"):
        tier.check()
    tier.close()
