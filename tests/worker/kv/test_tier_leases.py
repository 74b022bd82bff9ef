"""Leases order what leaves a tier, and never keep new work out."""

from array import array
from pathlib import Path

import pytest

from tests.worker.kv.layouts import LayoutClass
from tests.worker.kv.sequences import PUBLIC
from tests.worker.kv.tiered import Clock, live, tiered
from worker.wire import Retention, RetentionRange


def test_a_lease_outlives_what_was_used_later_and_a_low_one_goes_first(layout: LayoutClass, tmp_path: Path) -> None:
    clock = Clock()
    memory = tiered(tmp_path, layout=layout, blocks=4, host=0, disk=0, clock=clock)
    keep = Retention([RetentionRange(90, 60_000)], "agent")
    live(memory, [1] * 9, retention=keep)
    for other in range(2, 8):
        live(memory, [other] * 9)
    assert live(memory, [1] * 9) == (8, 0, 0)
    clock.now += 61
    for other in range(2, 8):
        live(memory, [other] * 9)
    assert live(memory, [1] * 9) == (0, 0, 0)
    tally = memory.leases.tallies()["acme"]
    assert (tally.kept, tally.broken) == (2, 0)
    memory.shut()


def test_the_next_turn_supersedes_the_last_and_release_ends_it(layout: LayoutClass, tmp_path: Path) -> None:
    memory = tiered(tmp_path, layout=layout, blocks=6, host=0, disk=0)
    keep = Retention([RetentionRange(90, 60_000)], "agent")
    live(memory, [1] * 5, retention=keep)
    live(memory, [1] * 4 + [2] * 9, retention=keep)
    assert memory.leases.tallies()["acme"].leased == [3, 0, 0]
    assert memory.release("acme", "agent", array("I", [1] * 4 + [2] * 8), PUBLIC) == 3
    assert memory.leases.tallies()["acme"].leased == [0, 0, 0]
    for other in range(3, 6):
        live(memory, [other] * 9)
    assert live(memory, [1] * 4 + [2] * 9) == (0, 0, 0)
    memory.shut()


def test_leases_order_what_leaves_the_disk_too(layout: LayoutClass, tmp_path: Path) -> None:
    """Also one that is taken when its block is on disk, and one that is over before there is no room."""
    clock = Clock()
    memory = tiered(tmp_path, layout=layout, blocks=2, host=0, disk=6, clock=clock)
    leased, over, retained = [1] * 5, [2] * 5, [3] * 5
    live(memory, leased, retention=Retention([RetentionRange(90, 600_000)], "long"))
    for tokens in (over, retained, [4] * 9, [5] * 9):
        live(memory, tokens)
    for tag, tokens, ttl in (("globex", over, 5_000), ("initech", retained, 600_000)):
        assert memory.retain(tag, Retention([RetentionRange(80, ttl)]), array("I", tokens), PUBLIC) == 1
    clock.now += 6
    for other in range(6, 12):
        live(memory, [other] * 9)
    assert len(list(tmp_path.iterdir())) == 6
    assert [live(memory, tokens)[2] for tokens in (leased, over, retained)] == [4, 0, 4]
    memory.shut()


def test_what_is_released_leaves_the_disk_first(layout: LayoutClass, tmp_path: Path) -> None:
    memory = tiered(tmp_path, layout=layout, blocks=2, host=0, disk=3)
    for one in range(1, 5):
        live(memory, [one] * 5)
    assert len(list(tmp_path.iterdir())) == 2
    assert memory.release("acme", "", array("I", [2] * 5), PUBLIC) == 1
    live(memory, [5] * 9)
    live(memory, [6] * 9)
    assert live(memory, [2] * 5) == (0, 0, 0)
    memory.shut()


def test_a_pool_full_of_leases_still_admits_new_work(layout: LayoutClass, tmp_path: Path) -> None:
    memory = tiered(tmp_path, layout=layout, blocks=2, host=0, disk=0)
    live(memory, [1] * 9, retention=Retention([RetentionRange(100, 600_000)]))
    assert live(memory, [2] * 9) == (0, 0, 0)
    assert live(memory, [2] * 9) == (8, 0, 0)
    assert memory.leases.tallies()["acme"].broken == 2
    memory.shut()


@pytest.mark.parametrize(("host", "disk"), [(1, 0), (0, 1)])
def test_below_the_device_no_block_makes_room_for_one_of_lower_priority(
    layout: LayoutClass, tmp_path: Path, host: int, disk: int
) -> None:
    memory = tiered(tmp_path, layout=layout, blocks=2, host=host, disk=disk)
    live(memory, [1] * 5, retention=Retention([RetentionRange(60, 600_000)]))
    for other in range(2, 8):
        live(memory, [other] * 9)
    assert memory.leases.tallies()["acme"].broken == 0
    assert live(memory, [1] * 5) == (0, 4 * host, 4 * disk)
    live(memory, [2] * 9)
    live(memory, [8] * 5, retention=Retention([RetentionRange(60, 600_000)]))
    for other in range(2, 8):
        live(memory, [other] * 9)
    assert [live(memory, [one] * 5) for one in (1, 8)] == [(0, 0, 0), (0, 4 * host, 4 * disk)]
    memory.shut()


@pytest.mark.parametrize(("host", "disk"), [(2, 0), (0, 2)])
def test_a_block_of_low_priority_makes_room_for_itself_where_others_would_be_lost_without_it(
    layout: LayoutClass, tmp_path: Path, host: int, disk: int
) -> None:
    memory = tiered(tmp_path, layout=layout, blocks=3, host=host, disk=disk)
    live(memory, [1] * 13, retention=Retention([RetentionRange(90, 600_000, start=4)]))
    live(memory, [2] * 13)
    assert memory.known(array("I", [1] * 12), PUBLIC) == 2
    memory.shut()
