"""A prefix that is known on a lower tier and computed all the same, since that is quicker."""

from pathlib import Path

from tests.worker.kv.layouts import LayoutClass
from tests.worker.kv.tiered import live, tiered


def test_a_block_is_not_loaded_when_computing_it_is_quicker(layout: LayoutClass, tmp_path: Path) -> None:
    memory = tiered(tmp_path, layout=layout, blocks=2, host=4, disk=0)
    live(memory, [1] * 9)
    live(memory, [2] * 9)
    memory.reuse.prefill_tps = 1e12
    assert live(memory, [1] * 9) == (0, 0, 0)
    live(memory, [2] * 9)
    memory.reuse.prefill_tps = 10.0
    assert sum(live(memory, [1] * 9)) == 8
    memory.shut()


def test_a_block_that_is_computed_again_is_not_evicted_from_host_to_make_room_for_itself(
    layout: LayoutClass, tmp_path: Path
) -> None:
    memory = tiered(tmp_path, layout=layout, blocks=1, host=1, disk=0)
    live(memory, [1] * 5)
    live(memory, [2] * 5)
    memory.reuse.prefill_tps = 1e12
    assert live(memory, [1] * 5) == (0, 0, 0)
    assert live(memory, [1] * 5) == (4, 0, 0)
    memory.shut()
