"""Sets of holders are kept once, counted, and forgotten with their last block."""

import pytest

from cacheplane.holders import NOBODY, Holders, HolderSets
from cacheplane.wire import Tier


def test_a_worker_comes_to_a_tier_and_leaves_it() -> None:
    holders = Holders().having(Tier.DEVICE, 1).having(Tier.HOST, 1).having(Tier.DISK, 2)
    assert holders == Holders(device=1, host=1, disk=2)
    assert holders.anywhere == 3
    assert holders.lacking(Tier.DEVICE, 1).lacking(Tier.DISK, 1) == Holders(host=1, disk=2)
    assert (holders.without(1), holders.only(1)) == (Holders(disk=2), Holders(device=1, host=1))


def test_equal_sets_have_one_id_while_blocks_use_them() -> None:
    sets = HolderSets()
    first = sets.move(NOBODY, Holders(device=1), 10)
    second = sets.move(first, Holders(device=3), 4)
    assert sets.move(NOBODY, Holders(device=3), 1) == second
    assert (len(sets), Holders(device=1) in sets) == (2, True)
    assert sets.having(2).tolist() == [False, False, True]
    assert sets.move(first, Holders(), 6) == NOBODY
    assert (len(sets), Holders(device=1) in sets) == (1, False)
    with pytest.raises(KeyError):
        sets[first]


def test_a_forgotten_id_is_used_again() -> None:
    sets = HolderSets()
    ids = set()
    for worker in range(1, 100):
        ids.add(id_ := sets.move(NOBODY, Holders(device=worker), 1))
        sets.move(id_, Holders(), 1)
    assert len(ids) == 1


def test_a_change_that_changes_nothing_keeps_the_id() -> None:
    sets = HolderSets()
    id_ = sets.move(NOBODY, Holders(device=1), 3)
    assert sets.move(id_, Holders(device=1), 3) == id_
    assert sets.move(id_, Holders(), 3) == NOBODY
    assert len(sets) == 0
