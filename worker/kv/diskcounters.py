"""What the disk tier has done."""

from dataclasses import dataclass


@dataclass(slots=True)
class DiskCounters:
    """What happened since the start, in blocks.

    stored    written
    loaded    read back, every byte right
    corrupt   files found damaged, cut off, foreign or gone, at a load or a scan
    refused   not written: staging was full, or no block could make room
    failed    not written: the system said no
    dropped   no longer on disk, and told so in `take_dropped`
    evicted   those of them that made room for another
    """

    stored: int = 0
    loaded: int = 0
    corrupt: int = 0
    refused: int = 0
    failed: int = 0
    dropped: int = 0
    evicted: int = 0

    def faults(self) -> dict[str, int]:
        """Blocks that the disk could have held, or held, and did not give, by kind."""
        return {kind: getattr(self, kind) for kind in ("corrupt", "refused", "failed")}
