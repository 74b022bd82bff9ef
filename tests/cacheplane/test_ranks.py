"""Each data-parallel rank is a holder of its own."""

import pytest

from cacheplane.index import Overlap, PrefixIndex
from cacheplane.ranks import Ranks, holder, rank_address
from cacheplane.wire import Batch
from tests.cacheplane.oracle import keys, snapshot, stored

A, B = b"a" * 16, b"b" * 16


def test_a_rank_is_found_under_its_own_name() -> None:
    index = PrefixIndex(max_blocks=100)
    ranks = Ranks(index, 2)
    ranks.replace("w0", snapshot())
    ranks.apply("w0", Batch(0.0, [stored(A)], 0))
    ranks.apply("w0", Batch(0.0, [stored(A, B)], 1))
    assert index.match(keys([A, B])) == {"w0/0": Overlap(device=1), "w0/1": Overlap(device=2)}
    assert (index.synced("w0/0"), index.synced("w0/1")) == (True, True)
    ranks.doubt("w0")
    assert not index.synced("w0/1")
    ranks.drop("w0")
    assert len(index) == 0


def test_an_engine_with_one_rank_goes_by_its_own_name() -> None:
    index = PrefixIndex(max_blocks=100)
    ranks = Ranks(index, 1)
    ranks.apply("w0", Batch(0.0, [stored(A)], None))
    ranks.apply("w0", Batch(0.0, [stored(B)], 0))
    assert (index.blocks("w0"), holder("w0", 0, 1)) == (2, "w0")


def test_a_rank_that_should_not_be_is_counted() -> None:
    index = PrefixIndex(max_blocks=100)
    ranks = Ranks(index, 2)
    ranks.apply("w0", Batch(0.0, [stored(A)], 2))
    ranks.apply("w0", Batch(0.0, [stored(A)], -1))
    assert (ranks.strange, len(index)) == (2, 0)
    with pytest.raises(ValueError, match="at least one"):
        Ranks(index, 0)


def test_a_rank_publishes_on_a_port_of_its_own() -> None:
    assert rank_address("tcp://127.0.0.1:5557", 3) == "tcp://127.0.0.1:5560"
    with pytest.raises(ValueError, match="port"):
        rank_address("ipc:///tmp/events", 1)
