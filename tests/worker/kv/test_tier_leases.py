"""Leases order what leaves a tier, and never keep new work out."""

from array import array
from pathlib import Path

from tests.worker.kv.layouts import LayoutClass
from tests.worker.kv.test_memory import PUBLIC
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


def test_a_pool_full_of_leases_still_admits_new_work(layout: LayoutClass, tmp_path: Path) -> None:
    memory = tiered(tmp_path, layout=layout, blocks=2, host=0, disk=0)
    live(memory, [1] * 9, retention=Retention([RetentionRange(100, 600_000)]))
    assert live(memory, [2] * 9) == (0, 0, 0)
    assert live(memory, [2] * 9) == (8, 0, 0)
    assert memory.leases.tallies()["acme"].broken == 2
    memory.shut()
