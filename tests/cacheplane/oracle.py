"""What the index should know, in the plainest form, and what it does know, for tests."""

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from cacheplane.identity import keys_of
from cacheplane.index import Overlap, PrefixIndex
from cacheplane.refill import refill
from cacheplane.subscriber import Sink
from cacheplane.wire import AllBlocksCleared, Batch, BlockRemoved, BlockStored, Event, Snapshot, SnapshotBlock, Tier

LOCAL = (Tier.DEVICE, Tier.HOST, Tier.DISK)


def stored(*names: bytes, tier: Tier = Tier.DEVICE, parent: bytes | None = None) -> BlockStored:
    return BlockStored(list(names), parent, 16, tier)


def removed(*names: bytes, tier: Tier = Tier.DEVICE) -> BlockRemoved:
    return BlockRemoved(list(names), tier)


def batch(*events: Event) -> Batch:
    return Batch(0.0, list(events))


def snapshot(*blocks: tuple[bytes, Tier]) -> Snapshot:
    return Snapshot(1, -1, 16, [SnapshotBlock(name, None, tier) for name, tier in blocks])


def restore(sink: Sink, worker: str, snapshot: Snapshot) -> None:
    """Takes in a snapshot as a subscriber does."""
    sink.clear(worker)
    for piece in refill(snapshot):
        sink.apply(worker, piece)
    sink.trust(worker)


def keys(names: Sequence[bytes]) -> NDArray[np.uint64]:
    return keys_of(names) if names else np.empty(0, np.uint64)


class Model:
    """(worker, block, tier) triples."""

    def __init__(self) -> None:
        self.held: set[tuple[str, bytes, Tier]] = set()

    def apply(self, worker: str, events: Iterable[Event]) -> None:
        for event in events:
            match event:
                case BlockStored():
                    self.held |= {(worker, name, event.tier) for name in event.hashes}
                case BlockRemoved():
                    self.held -= {(worker, name, event.tier) for name in event.hashes}
                case AllBlocksCleared():
                    self.drop(worker)

    def replace(self, worker: str, snapshot: Snapshot) -> None:
        self.drop(worker)
        self.held |= {(worker, block.hash, Tier(block.tier)) for block in snapshot.blocks}

    def drop(self, worker: str) -> None:
        self.held = {triple for triple in self.held if triple[0] != worker}

    def match(self, names: Sequence[bytes]) -> dict[str, Overlap]:
        found = {worker: self._overlap(worker, names) for worker in {worker for worker, _, _ in self.held}}
        return {worker: overlap for worker, overlap in found.items() if overlap.blocks}

    def _overlap(self, worker: str, names: Sequence[bytes]) -> Overlap:
        counts = dict.fromkeys(LOCAL, 0)
        for name in names:
            tiers = [tier for tier in LOCAL if (worker, name, tier) in self.held]
            if not tiers:
                break
            counts[tiers[0]] += 1
        return Overlap(*counts.values())

    def blocks(self, worker: str) -> set[bytes]:
        return {name for owner, name, tier in self.held if owner == worker and tier in LOCAL}


def held(index: PrefixIndex, worker: str, names: Sequence[bytes]) -> set[tuple[bytes, Tier]]:
    """Which of these blocks a worker holds, and where, as the index has it."""
    bit = index._roster.bit(worker)
    rows = index._table.find(keys(names).view(np.int64)).tolist()
    sets = {name: index._sets[int(index._table.holders[row])] for name, row in zip(names, rows, strict=True)}
    return {(name, tier) for name, holders in sets.items() for tier in LOCAL if holders[tier] & bit}


def check_books(index: PrefixIndex) -> None:
    """Everything that the index counts is what it has."""
    table, sets = index._table, index._sets
    rows = table.holders.nonzero()[0]
    assert len(rows) == len(table) == len(table._table) == table._places.taken
    assert table._places.top <= len(table.holders)
    assert (table.find(table._keys.take(rows)) == rows).all()
    assert not table._keys[table.holders == 0].any()
    uses = Counter(table.holders.take(rows).tolist())
    assert set(uses) == set(sets._ids.values()) - {0}
    assert all(sets._uses[id_] == count and sets._ids[sets[id_]] == id_ for id_, count in uses.items())
    pairs = {name: sum(n for id_, n in uses.items() if sets[id_].anywhere & index._roster.bit(name)) for name in NAMES}
    assert pairs == {name: index.blocks(name) for name in NAMES}


NAMES = ["w0", "w1", "w2"]
