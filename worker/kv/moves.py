"""What moved between the tiers."""

from dataclasses import dataclass


@dataclass(slots=True)
class Moves:
    """Blocks that went from one tier to the next since the start, and those that left memory for good.

    device_evicted, host_evicted   left the tier for want of room, whether there was another copy or not
    """

    offloaded: int = 0
    written: int = 0
    promoted: int = 0
    lost: int = 0
    device_evicted: int = 0
    host_evicted: int = 0
