"""A lease on a prefix whose sequence has ended already."""

from array import array
from collections.abc import Sequence
from pathlib import Path

from tests.worker.kv.layouts import LayoutClass
from tests.worker.kv.sequences import PUBLIC
from tests.worker.kv.tiered import Clock, live, tiered
from worker.kv import KVMemory
from worker.wire import Retention, RetentionRange


def lease(session: str = "agent", seconds: int = 60) -> Retention:
    return Retention([RetentionRange(90, seconds * 1000)], session)


def retain(memory: KVMemory, tokens: Sequence[int], retention: Retention) -> int:
    granted = memory.retain("acme", retention, array("I", tokens), PUBLIC)
    memory.check()
    return granted


def leased(memory: KVMemory) -> list[int]:
    return memory.leases.tallies()["acme"].leased


def crowd_out(memory: KVMemory) -> None:
    for other in range(2, 8):
        live(memory, [other] * 9)


def test_what_is_retained_outlives_what_was_used_later_until_its_time_is_over(
    layout: LayoutClass, tmp_path: Path
) -> None:
    clock = Clock()
    memory = tiered(tmp_path, layout=layout, blocks=4, host=0, disk=0, clock=clock)
    live(memory, [1] * 9)
    assert retain(memory, [1] * 11, lease()) == 2
    crowd_out(memory)
    assert live(memory, [1] * 9) == (8, 0, 0)
    clock.now += 61
    crowd_out(memory)
    assert live(memory, [1] * 9) == (0, 0, 0)
    memory.shut()


def test_of_an_unknown_prefix_nothing_is_retained_and_of_one_not_stored_what_others_have(
    layout: LayoutClass, tmp_path: Path
) -> None:
    memory = tiered(tmp_path, layout=layout, blocks=6, host=0, disk=0)
    assert retain(memory, [1] * 9, lease()) == 0
    live(memory, [1] * 5)
    holding = memory.open(array("I", [1] * 9), PUBLIC, store=False)
    assert holding is not None
    memory.close(holding)
    assert retain(memory, [1] * 9, lease()) == 1
    memory.shut()


def test_it_is_idempotent_and_the_next_turn_takes_its_place(layout: LayoutClass, tmp_path: Path) -> None:
    memory = tiered(tmp_path, layout=layout, blocks=6, host=0, disk=0)
    live(memory, [1] * 9)
    assert [retain(memory, [1] * 9, lease()) for _ in range(3)] == [2, 2, 2]
    assert leased(memory) == [2, 0, 0]
    live(memory, [1] * 13, retention=lease())
    assert leased(memory) == [3, 0, 0]
    memory.shut()


def test_a_turn_that_asks_for_nothing_ends_the_last_ones_lease(layout: LayoutClass, tmp_path: Path) -> None:
    memory = tiered(tmp_path, layout=layout, blocks=6, host=0, disk=0)
    live(memory, [1] * 9)
    retain(memory, [1] * 9, lease())
    live(memory, [1] * 13, retention=Retention([RetentionRange(0, 0, 0, 0)], "agent"))
    assert leased(memory) == [0, 0, 0]
    memory.shut()


def test_what_a_sequence_still_uses_ends_its_time_from_its_release(layout: LayoutClass, tmp_path: Path) -> None:
    clock = Clock()
    memory = tiered(tmp_path, layout=layout, blocks=6, host=0, disk=0, clock=clock)
    live(memory, [1] * 9)
    holding = memory.open(array("I", [1] * 5), PUBLIC)
    assert holding is not None
    retain(memory, [1] * 9, lease())
    clock.now += 61
    memory.poll()
    assert leased(memory) == [1, 0, 0]
    memory.close(holding)
    clock.now += 59
    memory.check()
    assert leased(memory) == [1, 0, 0]
    clock.now += 2
    assert leased(memory) == [0, 0, 0]
    memory.shut()


def test_the_budget_holds_and_the_newest_gets_it(layout: LayoutClass, tmp_path: Path) -> None:
    memory = tiered(tmp_path, layout=layout, slots=1, blocks=11, host=0, disk=0)
    for kind in (1, 2, 3):
        live(memory, [kind] * 13)
        assert retain(memory, [kind] * 13, lease(str(kind))) == 3
    assert leased(memory) == [6, 0, 0]
    memory.shut()
