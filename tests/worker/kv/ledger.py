"""An index as a consumer of block events would keep it."""

from collections.abc import Iterable

from cacheplane.wire import AllBlocksCleared, BlockRemoved, BlockStored, Event, SnapshotBlock


def replayed(events: Iterable[Event]) -> dict[bytes, bytes | None]:
    """Block hash to parent hash after these events; every stored block must be new and every removed one known."""
    index: dict[bytes, bytes | None] = {}
    for event in events:
        match event:
            case BlockStored():
                parent = event.parent
                assert parent is None or parent in index
                for digest in event.hashes:
                    assert digest not in index
                    index[digest], parent = parent, digest
            case BlockRemoved():
                for digest in event.hashes:
                    assert digest not in index.values()
                    del index[digest]
            case AllBlocksCleared():
                assert not index
    return index


def listed(blocks: Iterable[SnapshotBlock]) -> dict[bytes, bytes | None]:
    """The same of a snapshot; parents must come before children."""
    index: dict[bytes, bytes | None] = {}
    for block in blocks:
        assert block.parent is None or block.parent in index
        index[block.hash] = block.parent
    return index
