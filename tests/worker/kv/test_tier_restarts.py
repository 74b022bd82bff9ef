"""What an earlier run has left on disk: found whatever the layout was, and never wrong."""

from array import array
from itertools import permutations, product
from pathlib import Path

import pytest

from cacheplane.identity import BlockChain, Span
from tests.worker.kv.layouts import (
    LAYOUTS,
    BrainPages,
    Fp8Pages,
    Fp8Slots,
    HalfSlots,
    HalfTiles,
    Int8Pages,
    Int8Slots,
    LayoutClass,
    TorchSlots,
)
from tests.worker.kv.sequences import BLOCK, PUBLIC
from tests.worker.kv.tiered import damage, live, loaded, quiet, tiered
from tests.worker.rig import ACME, GLOBEX
from worker.wire import Retention, RetentionRange

ALIKE: list[list[LayoutClass]] = [
    [*LAYOUTS, TorchSlots],
    [HalfSlots, HalfTiles],
    [Int8Slots, Int8Pages],
    [Fp8Slots, Fp8Pages],
    [BrainPages],
]
STRANGERS = permutations([kind[0] for kind in ALIKE], 2)


@pytest.mark.parametrize(
    ("yesterday", "today"),
    [pair for kind in ALIKE for pair in product(kind, kind)],
)
def test_a_restarted_worker_serves_yesterdays_prefixes_from_disk_whatever_its_layout_was(
    yesterday: LayoutClass, today: LayoutClass, tmp_path: Path
) -> None:
    memory = tiered(tmp_path, layout=yesterday, blocks=4, host=4, disk=20)
    live(memory, [1] * 17)
    assert memory.shut() == 4
    memory = tiered(tmp_path, layout=today, blocks=4, host=4, disk=20)
    assert live(memory, [1] * 17) == (0, 0, 16)
    assert live(memory, [1] * 17, [Span(0, GLOBEX)]) == (0, 0, 0)
    assert sum(live(memory, [1] * 17)) == 16
    memory.shut()


@pytest.mark.parametrize(("yesterday", "today"), list(STRANGERS))
def test_blocks_of_another_kind_of_kv_are_no_answer(yesterday: LayoutClass, today: LayoutClass, tmp_path: Path) -> None:
    """Not even where a file has the same size, as halves of two sorts have: these files are gone."""
    memory = tiered(tmp_path, layout=yesterday, blocks=4, host=4, disk=20)
    live(memory, [1] * 17)
    assert memory.shut() == 4
    memory = tiered(tmp_path, layout=today, blocks=4, host=4, disk=20)
    assert list(tmp_path.iterdir()) == []
    assert live(memory, [1] * 17) == (0, 0, 0)
    memory.shut()


def test_what_is_not_worth_offloading_is_not_kept_over_a_restart_either(layout: LayoutClass, tmp_path: Path) -> None:
    memory = tiered(tmp_path, layout=layout, blocks=6, host=4, disk=20)
    live(memory, [1] * 9, retention=Retention([RetentionRange(90, 600_000)]))
    live(memory, [2] * 9, retention=Retention([RetentionRange(5, 600_000)]))
    assert memory.shut() == 2
    kept = BlockChain.of([1] * 8, ACME, BLOCK).hashes
    assert {path.stem for path in tmp_path.iterdir()} == {digest.hex() for digest in kept}


def test_where_the_disk_is_too_small_for_all_what_is_worth_most_is_there_after_a_restart(
    layout: LayoutClass, tmp_path: Path
) -> None:
    memory = tiered(tmp_path, layout=layout, blocks=8, host=0, disk=4)
    live(memory, [1] * 9, retention=Retention([RetentionRange(90, 600_000)]))
    for tokens in ([2] * 9, [3] * 5, [4] * 9, [3] * 9):
        live(memory, tokens)
    memory.shut()
    memory = tiered(tmp_path, layout=layout, blocks=8, host=0, disk=4)
    assert [live(memory, [one] * 9)[2] for one in (1, 2, 3, 4)] == [8, 0, 8, 0]
    memory.shut()


@pytest.mark.parametrize("kind", ["corrupt", "remove", "truncate"])
def test_a_damaged_file_is_a_miss_from_that_block_on_and_nothing_is_left_of_what_hung_from_it(
    layout: LayoutClass, tmp_path: Path, kind: str
) -> None:
    memory = tiered(tmp_path, layout=layout, blocks=4, host=0, disk=20)
    live(memory, [1] * 17)
    memory.shut()
    hashes = BlockChain.of([1] * 16, ACME, BLOCK).hashes
    path = tmp_path / f"{hashes[1].hex()}.kv"
    if kind == "remove":
        path.unlink()
    elif kind == "truncate":
        path.write_bytes(path.read_bytes()[:-1])
    else:
        damage(path)
    memory = tiered(tmp_path, layout=layout, blocks=4, host=0, disk=20)
    holding = memory.open(array("I", [1] * 17), PUBLIC)
    assert holding is not None
    assert loaded(memory, holding).reused == 4
    memory.close(holding)
    quiet(memory)
    assert [file.stem for file in tmp_path.iterdir()] == [hashes[0].hex()]
    assert live(memory, [1] * 17) == (4, 0, 0)
    assert live(memory, [1] * 17) == (16, 0, 0)
    memory.shut()


def test_what_hangs_from_a_damaged_file_goes_when_the_last_sequence_that_stands_on_it_does(tmp_path: Path) -> None:
    memory = tiered(tmp_path, blocks=4, host=0, disk=20)
    live(memory, [1] * 17)
    memory.shut()
    memory = tiered(tmp_path, slots=3, blocks=1, host=0, disk=20)
    tokens, hashes = array("I", [1] * 17), BlockChain.of([1] * 16, ACME, BLOCK).hashes
    early = memory.open(tokens, PUBLIC)
    assert early is not None
    assert loaded(memory, early).reused == 16
    damage(tmp_path / f"{hashes[1].hex()}.kv")
    late = memory.open(tokens, PUBLIC)
    assert late is not None
    assert loaded(memory, late).reused == 4
    memory.close(late)
    quiet(memory)
    assert len(list(tmp_path.iterdir())) == 3
    memory.close(early)
    quiet(memory)
    assert [file.stem for file in tmp_path.iterdir()] == [hashes[0].hex()]
    memory.check()
    memory.shut()
