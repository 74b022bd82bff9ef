"""What a lease asks for, and what it is given."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple

from worker.kv.cover import Block

MAX_PRIORITY = 100
DEFAULT_PRIORITY = 35


@dataclass(frozen=True, slots=True)
class LeaseRange(Generic[Block]):
    """A part of what a lease asks for: blocks from the shallowest to the deepest, on the same terms.

    priority    0-100
    ttl         seconds from the release of each block; inf until it is dropped, superseded or forgotten
    errors      ValueError
    """

    blocks: Sequence[Block]
    priority: int
    ttl: float

    def __post_init__(self) -> None:
        if not 0 <= self.priority <= MAX_PRIORITY:
            raise ValueError(f"the priority of a lease is 0 to {MAX_PRIORITY}, not {self.priority}")
        if not self.ttl >= 0:  # not (ttl < 0): that would let NaN through
            raise ValueError(f"the time to live of a lease is 0 seconds or more, not {self.ttl}")


class Granted(NamedTuple):
    """How many blocks were granted, and how many were refused for want of budget."""

    granted: int
    refused: int


def apart(ranges: Iterable[LeaseRange[Block]]) -> list[LeaseRange[Block]]:
    """Each block in the first range that names it; without ranges that have none."""
    named: set[Block] = set()
    parts = []
    for part in ranges:
        blocks = [block for block in dict.fromkeys(part.blocks) if block not in named]
        named.update(blocks)
        if blocks:
            parts.append(LeaseRange(blocks, part.priority, part.ttl))
    return parts
