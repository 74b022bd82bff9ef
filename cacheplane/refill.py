"""A snapshot as the batches that fill an empty cache with what it lists."""

from collections.abc import Iterator
from typing import Final

from cacheplane.wire import Batch, BlockStored, Event, Snapshot, SnapshotBlock, Tier

AT_ONCE: Final = 512  # blocks of one batch at most, which an index takes in a millisecond or two
_EVENT: Final = 32  # an event takes as long as so many blocks


def refill(snapshot: Snapshot) -> Iterator[Batch]:
    """Parents first, as the snapshot has them.

    Applied one by one they keep nobody waiting for the whole: until the last one, blocks are missed, never invented.
    """
    events: list[Event] = []
    left = AT_ONCE
    for event in _runs(snapshot.blocks, snapshot.block_size):
        cost = len(event.hashes) + _EVENT
        if events and cost > left:
            yield Batch(0.0, events, None, snapshot.epoch)
            events, left = [], AT_ONCE
        events.append(event)
        left -= cost
    if events:
        yield Batch(0.0, events, None, snapshot.epoch)


def _runs(blocks: list[SnapshotBlock], block_size: int) -> Iterator[BlockStored]:
    """Blocks that follow each other on one tier, each behind its parent."""
    hashes: list[bytes] = []
    parent, tier = None, 0
    for block in blocks:
        if hashes and (block.parent != hashes[-1] or block.tier != tier or len(hashes) == AT_ONCE // 2):
            yield BlockStored(hashes, parent, block_size, Tier(tier))
            hashes = []
        if not hashes:
            parent, tier = block.parent, block.tier
        hashes.append(block.hash)
    if hashes:
        yield BlockStored(hashes, parent, block_size, Tier(tier))
