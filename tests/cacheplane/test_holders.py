"""Sets of holders are kept once, counted, and forgotten with their last block."""

import pytest

from cacheplane.holders import NOBODY, Change, Holders, HolderSets
from cacheplane.wire import Tier

STORED = Change(1, Tier.DEVICE, held=True)


def test_a_worker_comes_to_a_tier_and_leaves_it() -> None:
    holders = Holders().having(Tier.DEVICE, 1).having(Tier.HOST, 1).having(Tier.DISK, 2)
    assert holders == Holders(device=1, host=1, disk=2)
    assert holders.anywhere == 3
    assert holders.lacking(Tier.DEVICE, 1).lacking(Tier.DISK, 1) == Holders(host=1, disk=2)
    assert (holders.without(1), holders.only(1)) == (Holders(disk=2), Holders(device=1, host=1))


def test_a_change_is_of_one_worker_on_one_tier_or_on_all() -> None:
    holders = Holders(device=3, host=1)
    assert Change(4, Tier.DISK, held=True).of(holders) == Holders(device=3, host=1, disk=4)
    assert Change(1, Tier.DEVICE).of(holders) == Holders(device=2, host=1)
    assert Change(1).of(holders) == Holders(device=2)
    assert Change(2, Tier.HOST, held=True, alone=True).of(holders) == Holders(device=2, host=2)


def test_equal_sets_have_one_id_while_blocks_use_them() -> None:
    sets = HolderSets()
    first, come = sets.move(NOBODY, STORED, 10)
    second, also_come = sets.move(first, Change(2, Tier.DEVICE, held=True), 4)
    third, _ = sets.move(NOBODY, Change(2, Tier.DEVICE, held=True), 1)
    assert (come, also_come) == (1, 1)
    assert sets.move(third, STORED, 1) == (second, 1)
    assert (len(sets), Holders(device=1) in sets, Holders(device=2) in sets) == (2, True, False)
    assert sets.having(2)[[first, second]].tolist() == [False, True]
    assert sets.move(first, Change(1, Tier.DEVICE), 6) == (NOBODY, -1)
    assert (len(sets), Holders(device=1) in sets) == (1, False)
    with pytest.raises(KeyError):
        sets[first]


def test_a_forgotten_id_is_used_again_and_what_was_known_of_it_is_not() -> None:
    sets = HolderSets()
    ids = set()
    for worker in [1, 2] * 50:
        ids.add(id_ := sets.move(NOBODY, Change(worker, Tier.DEVICE, held=True), 1)[0])
        assert sets[id_] == Holders(device=worker)
        assert sets.move(id_, Change(worker), 1) == (NOBODY, -1)
    assert len(ids) == 1


def test_a_worker_that_has_a_copy_on_another_tier_neither_comes_nor_goes() -> None:
    sets = HolderSets()
    id_, _ = sets.move(NOBODY, STORED, 1)
    both, come = sets.move(id_, Change(1, Tier.HOST, held=True), 1)
    assert (sets[both], come) == (Holders(device=1, host=1), 0)
    assert sets.move(both, Change(1, Tier.HOST), 1)[1] == 0


def test_a_change_that_changes_nothing_keeps_the_id() -> None:
    sets = HolderSets()
    id_, _ = sets.move(NOBODY, STORED, 3)
    assert sets.move(id_, STORED, 3) == (id_, 0)
    assert sets.move(id_, Change(1), 3) == (NOBODY, -1)
    assert len(sets) == 0
