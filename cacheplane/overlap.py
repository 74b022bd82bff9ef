"""How much of a prompt each worker holds, from the sets of holders of its blocks."""

from collections.abc import Iterable
from typing import NamedTuple

from cacheplane.holders import Holders


class Overlap(NamedTuple):
    """The longest run of blocks from block 0 that one worker holds, split by where each is loaded from.

    device, host, disk   blocks; a block on several tiers counts for the nearest
    """

    device: int = 0
    host: int = 0
    disk: int = 0

    @property
    def blocks(self) -> int:
        return self.device + self.host + self.disk


def overlaps(runs: Iterable[tuple[int, Holders]]) -> list[tuple[int, Overlap]]:
    """(mask of workers, their overlap) for all that hold the first block.

    runs   the prompt's blocks in order: how many in a row have the same holders, and these

    Workers that held the prompt so far in the same way are one group, so that it costs little how many there are.
    A group is split by where its workers load the next blocks from; those that hold them nowhere are done.
    """
    groups, done = [(-1, 0, 0, 0)], []
    for run, (near, middle, far) in runs:
        left, below = [], middle | far
        for workers, device, host, disk in groups:
            if on := workers & near:
                left.append((on, device + run, host, disk))
            if not (rest := workers & ~near):
                continue
            if below:
                if on := rest & middle:
                    left.append((on, device, host + run, disk))
                if on := rest & far & ~middle:
                    left.append((on, device, host, disk + run))
            if gone := rest & ~below:
                done.append((gone, device, host, disk))
        if not (groups := left):
            break
    done += groups
    return [(workers, Overlap(device, host, disk)) for workers, device, host, disk in done if device or host or disk]
