"""A prefix that is known on a lower tier and computed all the same, since that is quicker."""

from pathlib import Path

from cacheplane.wire import Tier
from tests.worker.kv.layouts import LayoutClass
from tests.worker.kv.tiered import live, tiered

SLOW = 0.001  # tokens a second: slower than any load, though the machine may be busy with something else meanwhile


def test_a_block_is_not_loaded_when_computing_it_is_quicker(layout: LayoutClass, tmp_path: Path) -> None:
    memory = tiered(tmp_path, layout=layout, blocks=2, host=4, disk=0)
    live(memory, [1] * 9)
    live(memory, [2] * 9)
    assert live(memory, [1] * 9) == (0, 8, 0)
    live(memory, [2] * 9)
    memory.reuse.prefill_tps = 1e12
    assert live(memory, [1] * 9) == (0, 0, 0)
    live(memory, [2] * 9)
    memory.reuse.prefill_tps = SLOW
    assert sum(live(memory, [1] * 9)) == 8
    memory.shut()


def test_a_block_that_is_computed_again_is_not_evicted_from_host_to_make_room_for_itself(
    layout: LayoutClass, tmp_path: Path
) -> None:
    memory = tiered(tmp_path, layout=layout, blocks=1, host=1, disk=0)
    for one in (1, 2, 1, 2):
        live(memory, [one] * 5)
    memory.reuse.prefill_tps = 1e12
    assert live(memory, [1] * 5) == (0, 0, 0)
    assert live(memory, [1] * 5) == (4, 0, 0)
    memory.shut()


def test_a_tier_that_does_not_pay_by_a_guess_is_measured_with_a_few_blocks(layout: LayoutClass, tmp_path: Path) -> None:
    memory = tiered(tmp_path, layout=layout, blocks=7, host=7, disk=0)
    memory.reuse.prefill_tps = 1e12
    for one in (1, 2):
        live(memory, [one] * 29)
    assert live(memory, [1] * 29) == (0, 4 * 4, 0)
    assert live(memory, [2] * 29)[1] == 0
    memory.shut()


def test_one_stall_does_not_switch_a_tier_off_for_ever(tmp_path: Path) -> None:
    memory = tiered(tmp_path, blocks=2, host=4, disk=0)
    for one in (1, 2):
        live(memory, [one] * 9)
    memory.reuse.prefill_tps = SLOW
    memory.reuse._loader.rates[Tier.HOST].observe(1, 3600.0)  # a byte an hour
    loads = [live(memory, [1 + turn % 2] * 9)[1] for turn in range(70)]
    assert (loads[:64], loads[64:]) == ([0] * 64, [8] * 6)
    memory.shut()
