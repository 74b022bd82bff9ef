"""An index as a consumer of block events would keep it."""

from collections.abc import Iterable

from cacheplane.wire import BlockRemoved, BlockStored, Event, SnapshotBlock, Tier

Index = dict[tuple[bytes, Tier], bytes | None]


def replayed(events: Iterable[Event]) -> Index:
    """(block hash, tier) to parent hash after these events; what is stored must be new there, what is removed known."""
    index: Index = {}
    for event in events:
        match event:
            case BlockStored():
                parent = event.parent
                for digest in event.hashes:
                    assert (digest, event.tier) not in index
                    index[digest, event.tier], parent = parent, digest
            case BlockRemoved():
                for digest in event.hashes:
                    del index[digest, event.tier]
    return index


def listed(blocks: Iterable[SnapshotBlock]) -> Index:
    """The same of a snapshot."""
    return {(block.hash, Tier(block.tier)): block.parent for block in blocks}
