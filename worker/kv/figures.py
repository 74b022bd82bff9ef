"""What KV memory looks like from outside, at one moment."""

from collections.abc import Mapping
from dataclasses import dataclass

from worker.kv.accounts import ByTier, Tally


@dataclass(frozen=True, slots=True)
class KVFigures:
    """What each tier holds, what moved since the start, and leases by tag.

    blocks      in use, by tier; bytes: the same as KV, and on disk as whole files
    capacity    bytes, by tier
    evicted     blocks that left a tier for want of room, by tier, whether copied down or not
    faults      of the disk tier since the start, by kind: see DiskCounters
    offloaded   device to host; written: to disk; promoted: back to the device; lost: left memory altogether
    """

    blocks: ByTier
    bytes: ByTier
    capacity: ByTier
    evicted: ByTier
    faults: Mapping[str, int]
    offloaded: int
    written: int
    promoted: int
    lost: int
    leases: Mapping[str, Tally]
