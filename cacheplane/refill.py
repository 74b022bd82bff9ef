"""Events in small batches: a snapshot as those that fill an empty cache with what it lists, and a large message."""

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from cacheplane.wire import Batch, BlockRemoved, BlockStored, Event, Snapshot, SnapshotBlock, Tier

AT_ONCE: Final = 512  # blocks of one batch at most, which an index takes in a millisecond or two
_EVENT: Final = 32  # an event takes as long as so many blocks
_RUN: Final = AT_ONCE // 2


def refill(snapshot: Snapshot) -> Iterator[Batch]:
    """Parents first, as the snapshot has them. WireError where a piece of it is malformed.

    Applied one by one they keep nobody waiting for the whole: until the last one, blocks are missed, never invented.
    """
    return _batches(_runs(snapshot.blocks, snapshot.block_size), Batch(0.0, [], None, snapshot.epoch))


def pieces(batch: Batch) -> Iterator[Batch]:
    """The same events in the same order. One that says what its blocks hold stays whole, however large it is."""
    if sum(map(_cost, batch.events)) <= AT_ONCE:
        yield batch
    else:
        yield from _batches((part for event in batch.events for part in _parts(event)), batch)


def _batches(events: Iterable[Event], like: Batch) -> Iterator[Batch]:
    """As many events in a batch as may be taken at once; all else as in `like`, but that `skipped` is told once."""
    taken: list[Event] = []
    left, skipped = AT_ONCE, like.skipped
    for event in events:
        cost = _cost(event)
        if taken and cost > left:
            yield msgspec.structs.replace(like, events=taken, skipped=skipped)
            taken, left, skipped = [], AT_ONCE, 0
        taken.append(event)
        left -= cost
    if taken:
        yield msgspec.structs.replace(like, events=taken, skipped=skipped)


def _cost(event: Event) -> int:
    return _EVENT + (len(event.hashes) if isinstance(event, BlockStored | BlockRemoved) else 0)


def _parts(event: Event) -> Iterator[Event]:
    """A large event as several, each of stored ones behind the last block of the one before."""
    if not isinstance(event, BlockStored | BlockRemoved) or len(event.hashes) <= _RUN:
        yield event
    elif isinstance(event, BlockRemoved):
        for at in range(0, len(event.hashes), _RUN):
            yield msgspec.structs.replace(event, hashes=event.hashes[at : at + _RUN])
    elif event.content is not None:
        yield event
    else:
        parent = event.parent
        for at in range(0, len(event.hashes), _RUN):
            hashes = event.hashes[at : at + _RUN]
            yield msgspec.structs.replace(event, hashes=hashes, parent=parent)
            parent = hashes[-1]


def _runs(blocks: Iterable[SnapshotBlock], block_size: int) -> Iterator[BlockStored]:
    """Blocks that follow each other on one tier, each behind its parent."""
    hashes: list[bytes] = []
    parent, tier = None, 0
    for block in blocks:
        if hashes and (block.parent != hashes[-1] or block.tier != tier or len(hashes) == _RUN):
            yield BlockStored(hashes, parent, block_size, Tier(tier))
            hashes = []
        if not hashes:
            parent, tier = block.parent, block.tier
        hashes.append(block.hash)
    if hashes:
        yield BlockStored(hashes, parent, block_size, Tier(tier))
