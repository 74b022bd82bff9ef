"""What left, and how: the last departure counts, and the index gets to hear everything."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cacheplane.attribution import Cause, Departures
from cacheplane.identity import keys_of
from cacheplane.index import PrefixIndex
from cacheplane.wire import AllBlocksCleared, Batch, BlockRemoved, BlockStored, Event, Snapshot, SnapshotBlock, Tier
from tests.cacheplane.oracle import restore

A, B, C = (name * 16 for name in (b"a", b"b", b"c"))


def batch(*events: Event) -> Batch:
    return Batch(0.0, list(events))


def stored(*names: bytes, tier: Tier = Tier.DEVICE) -> Batch:
    return batch(BlockStored(list(names), None, 16, tier))


def snapshot(*names: bytes) -> Snapshot:
    return Snapshot(1, -1, 16, [SnapshotBlock(name, None, Tier.DEVICE) for name in names])


def of(departures: Departures, *names: bytes) -> list[Cause]:
    return [Cause(cause) for cause in departures.causes(keys_of(names))]


def test_a_block_that_never_left_has_no_cause() -> None:
    departures = Departures(PrefixIndex())
    departures.apply("w0", stored(A))
    assert of(departures, A, B) == [Cause.UNKNOWN, Cause.UNKNOWN]


def test_leaving_the_device_is_an_eviction_and_leaving_a_lower_tier_is_a_drop() -> None:
    index = PrefixIndex()
    departures = Departures(index)
    departures.apply("w0", stored(A, B))
    departures.apply("w0", stored(B, tier=Tier.HOST))
    departures.apply("w0", batch(BlockRemoved([A, B], Tier.DEVICE, "evicted")))
    assert of(departures, A) == [Cause.EVICTED]
    assert index.blocks("w0") == 1  # B is still on host, which the index knows
    departures.apply("w0", batch(BlockRemoved([B], Tier.HOST, "evicted")))
    assert of(departures, A, B) == [Cause.EVICTED, Cause.TIER_DROPPED]
    assert index.blocks("w0") == 0


@pytest.mark.parametrize("event", [BlockRemoved([A], Tier.HOST, "cleared"), AllBlocksCleared()])
def test_a_cleared_cache_is_evicted_from_whatever_tier(event: Event) -> None:
    departures = Departures(PrefixIndex())
    departures.apply("w0", stored(A, tier=Tier.HOST))
    departures.apply("w0", batch(event))
    assert of(departures, A) == [Cause.EVICTED]


def test_a_worker_that_goes_takes_its_blocks_with_it() -> None:
    index = PrefixIndex()
    departures = Departures(index)
    restore(departures, "w0", snapshot(A))
    restore(departures, "w1", snapshot(B))
    departures.drop("w0")
    assert of(departures, A, B) == [Cause.WORKER_LOST, Cause.UNKNOWN]
    assert (index.blocks("w0"), index.blocks("w1")) == (0, 1)


def test_what_is_cleared_piece_by_piece_is_remembered_as_it_goes() -> None:
    index = PrefixIndex()
    departures = Departures(index)
    departures.apply("w0", stored(A, B, C))
    assert departures.clear("w0", 2) == index.blocks("w0") == 1
    assert sorted(of(departures, A, B, C)) == [Cause.UNKNOWN, Cause.EVICTED, Cause.EVICTED]
    assert departures.clear("w0", 2) == 0
    assert of(departures, A, B, C) == [Cause.EVICTED] * 3


def test_a_worker_goes_piece_by_piece_and_takes_all_of_its_blocks_with_it() -> None:
    index = PrefixIndex()
    departures = Departures(index)
    restore(departures, "w0", snapshot(A, B, C))
    assert departures.drop("w0", 2) == 1
    assert not index.synced("w0")
    assert departures.drop("w0", 2) == 0
    assert of(departures, A, B, C) == [Cause.WORKER_LOST] * 3
    assert index._roster.bit("w0") == 0


def test_what_a_new_snapshot_lists_no_more_was_evicted_unheard() -> None:
    index = PrefixIndex()
    departures = Departures(index)
    restore(departures, "w0", snapshot(A, B))
    departures.doubt("w0")
    assert not index.synced("w0")
    restore(departures, "w0", snapshot(B, C))
    assert of(departures, A, C) == [Cause.EVICTED, Cause.UNKNOWN]
    assert index.blocks("w0") == 2
    assert index.synced("w0")


@given(st.lists(st.tuples(st.integers(1, 200), st.sampled_from(Tier)), max_size=60))
def test_the_table_stays_small_and_never_names_a_block_that_did_not_leave(gone: list[tuple[int, Tier]]) -> None:
    departures = Departures(PrefixIndex(), slots=16)
    for number, tier in gone:
        departures.apply("w0", batch(BlockRemoved([number.to_bytes(16, "little")], tier)))
    keys = np.arange(201, dtype=np.uint64)
    causes = departures.causes(keys)
    last = dict(gone)
    known = {int(key) for key in keys[causes != Cause.UNKNOWN]} - {0}
    assert known <= set(last)
    assert len(known) <= 16
    for number in known:
        assert causes[number] == (Cause.EVICTED if last[number] is Tier.DEVICE else Cause.TIER_DROPPED)


def test_slots_that_are_no_power_of_two_are_refused() -> None:
    with pytest.raises(ValueError, match="power of two"):
        Departures(PrefixIndex(), slots=3)
