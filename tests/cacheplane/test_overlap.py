"""Overlaps from runs of holders, against counting block by block."""

from hypothesis import given
from hypothesis import strategies as st

from cacheplane.holders import Holders
from cacheplane.overlap import Overlap, overlaps

masks = st.integers(0, 15)
runs = st.lists(st.tuples(st.integers(1, 5), st.builds(Holders, masks, masks, masks)), max_size=8)


@given(runs)
def test_groups_of_workers_count_as_each_worker_would_alone(runs: list[tuple[int, Holders]]) -> None:
    found = {bit: overlap for workers, overlap in overlaps(runs) for bit in (1, 2, 4, 8) if workers & bit}
    assert found == {bit: alone for bit in (1, 2, 4, 8) if (alone := _alone(runs, bit)).blocks}


def _alone(runs: list[tuple[int, Holders]], bit: int) -> Overlap:
    counts = [0, 0, 0]
    for holders in (holders for run, holders in runs for _ in range(run)):
        tiers = [tier for tier, mask in enumerate(holders) if mask & bit]
        if not tiers:
            break
        counts[tiers[0]] += 1
    return Overlap(*counts)


def test_workers_that_do_alike_stay_one_group() -> None:
    everyone = (1 << 256) - 1
    found = overlaps([(100, Holders(device=everyone)), (5, Holders(device=6, host=8))])
    assert sorted(found) == [
        (6, Overlap(device=105)),
        (8, Overlap(device=100, host=5)),
        (everyone & ~14, Overlap(device=100)),
    ]
