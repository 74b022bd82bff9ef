"""What KV memory looks like from outside, at one moment."""

from collections.abc import Mapping
from dataclasses import dataclass

from worker.kv.accounts import Tally


@dataclass(frozen=True, slots=True)
class KVFigures:
    """Blocks on the slower tiers, blocks moved since the start, and leases by tag.

    offloaded   device to host; written: to disk; promoted: back to the device; lost: left memory altogether
    """

    host_blocks: int
    disk_blocks: int
    offloaded: int
    written: int
    promoted: int
    lost: int
    leases: Mapping[str, Tally]
