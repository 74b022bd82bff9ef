"""The prefix index: for each block, which workers hold it and on which tier."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cacheplane.blocktable import AT_ONCE, DEEPEST, BlockTable
from cacheplane.holders import NOBODY, Holders, HolderSets
from cacheplane.identity import keys_of
from cacheplane.keytable import Keys, Rows
from cacheplane.overlap import Overlap, overlaps
from cacheplane.roster import Roster
from cacheplane.wire import AllBlocksCleared, Batch, BlockRemoved, BlockStored, Snapshot, Tier

# Blocks in storage that the whole fleet shares are no worker's own: they say nothing about where to send a request.
_TIERS: Final = (Tier.DEVICE, Tier.HOST, Tier.DISK)

DEFAULT_MAX_BLOCKS: Final = 4_000_000
BLOCKS_PER_SET: Final = 16  # of the bound; it keeps the sets of holders below 25 bytes per block
FEW_SETS: Final = 4_096
GIVEN_UP: Final = 16  # above the bound, at least the deepest sixteenth of a stretch goes at once

__all__ = ["DEFAULT_MAX_BLOCKS", "Overlap", "PrefixIndex"]


class PrefixIndex:
    """Confirmed blocks of all workers, as their event streams tell.

    Before    one stream per worker, applied in order by one task; not thread-safe.
    After     apply is idempotent: storing twice or removing what is not there changes nothing.
    Bound     at most `max_blocks` (worker, block) pairs. Above it the worker with most blocks gives up the deepest
              of a stretch of rows, so that what is left still matches from block 0. And where the fleet has more
              sets of holders than one for 16 blocks of the bound, a block keeps the worker that spoke of it last.
              `forgotten` counts the pairs. A forgotten block is a missed hit, never a false one.

    A key is 64 bits of a block's hash: two blocks that share one cost a detour. A row of the table says which set
    of holders a block has (`HolderSets`), so that its size does not depend on how many workers there are.
    """

    def __init__(self, max_blocks: int = DEFAULT_MAX_BLOCKS) -> None:
        self.max_blocks = max_blocks
        self.forgotten = 0
        self._max_sets = max(FEW_SETS, max_blocks // BLOCKS_PER_SET)
        self._table = BlockTable(max_blocks)
        self._sets = HolderSets()
        self._roster = Roster()
        self._held: Counter[str] = Counter()  # blocks by worker
        self._synced: set[str] = set()
        self._size = 0
        self._hand = 1  # the row at which giving up goes on

    def __len__(self) -> int:
        """(worker, block) pairs."""
        return self._size

    @property
    def nbytes(self) -> int:
        """Memory in use by rows and seats; the sets of holders come on top, 300 bytes each or so."""
        return self._table.nbytes

    def blocks(self, worker_id: str) -> int:
        """Different blocks that a worker holds, on any tier."""
        return self._held[worker_id]

    def keys(self, worker_id: str) -> NDArray[np.uint64]:
        """The keys of all blocks that a worker holds, in no order. It looks at every row, a few ms per million."""
        found = [self._table.keys_at(rows) for rows in self._rows_of(worker_id)]
        return np.concatenate([np.empty(0, np.int64), *found]).view(np.uint64)

    def synced(self, worker_id: str) -> bool:
        """Whether the worker's stream is whole since its snapshot: a block not found is a block not held."""
        return worker_id in self._synced

    def match(self, keys: NDArray[np.uint64]) -> dict[str, Overlap]:
        """The overlap of every worker that holds at least the first block of the chain with these keys."""
        ids = self._table.holders.take(self._table.chain(keys.view(np.int64)))
        found: dict[str, Overlap] = {}
        for workers, overlap in overlaps(self._runs(ids)):
            found.update(dict.fromkeys(self._roster.named(workers), overlap))
        return found

    def _runs(self, ids: NDArray[np.uint32]) -> Iterator[tuple[int, Holders]]:
        """(blocks in a row with the same holders, these)."""
        start = 0
        for last in (ids[1:] != ids[:-1]).nonzero()[0].tolist():
            yield last + 1 - start, self._sets[ids.item(start)]
            start = last + 1
        if len(ids):
            yield len(ids) - start, self._sets[ids.item(start)]

    def apply(self, worker_id: str, batch: Batch) -> None:
        """The events of one message, in order; the stream decides whether a message may be applied."""
        for event in batch.events:
            match event:
                case BlockStored():
                    self._store(worker_id, event)
                case BlockRemoved():
                    self._remove(worker_id, event)
                case AllBlocksCleared():
                    self._clear(worker_id)

    def replace(self, worker_id: str, snapshot: Snapshot) -> None:
        """The worker holds exactly what the snapshot lists, whatever was known before."""
        self._clear(worker_id)
        depths = _depths(snapshot)
        for tier in _TIERS:
            keys = _distinct(_keys([block.hash for block in snapshot.blocks if block.tier == tier]))
            for piece in _pieces(keys):
                deep = np.array([depths[key] for key in piece.tolist()], np.int64)
                self._hold(worker_id, tier, piece, self._table.find(piece), deep, behind=0)
        self._synced.add(worker_id)

    def doubt(self, worker_id: str) -> None:
        """The worker's stream is broken: its blocks stay as a hint, until the next `replace` synced no more."""
        self._synced.discard(worker_id)

    def drop(self, worker_id: str) -> None:
        """The worker is gone, or holds nothing that is known."""
        self._clear(worker_id)
        self._synced.discard(worker_id)
        self._roster.leave(worker_id)

    def _store(self, worker_id: str, event: BlockStored) -> None:
        if event.tier not in _TIERS or not event.hashes:
            return
        above = [] if event.parent is None else [event.parent]
        keys = _keys([*above, *event.hashes])
        parent = keys[:1] if above else None
        for piece in _pieces(_distinct(keys[len(above) :])):
            self._store_piece(worker_id, event.tier, piece, parent)
            parent = piece[-1:]

    def _store_piece(self, worker_id: str, tier: Tier, keys: Keys, parent: Keys | None) -> None:
        """Blocks in chain order behind their parent, which is looked up along with them."""
        if parent is None:
            self._hold(worker_id, tier, keys, self._table.find(keys), depth=0, behind=0)
            return
        rows = self._table.find(np.concatenate((parent, keys)))
        behind = rows.item(0)
        depth = self._table.depths.item(behind) + 1 if behind else DEEPEST
        self._hold(worker_id, tier, keys, rows[1:], depth, behind)

    def _hold(self, worker_id: str, tier: Tier, keys: Keys, rows: Rows, depth: int | Rows, behind: int) -> None:
        """From now on the worker holds these blocks on this tier; `rows` is 0 where a block is new."""
        bit = self._roster.enrol(worker_id)
        new = (rows == 0).nonzero()[0]
        if len(new):
            first = new.item(0)
            fresh = self._changed(worker_id, NOBODY, len(new), Holders().having(tier, bit))
            depths = depth + new if isinstance(depth, int) else depth[new]
            self._table.enter(keys[new], depths, rows.item(first - 1) if first else behind, fresh)
        if len(new) < len(rows):
            self._change(worker_id, rows[rows != 0], lambda holders: holders.having(tier, bit))
        while self._size > self.max_blocks:
            self._give_up()

    def _remove(self, worker_id: str, event: BlockRemoved) -> None:
        if event.tier not in _TIERS or not (bit := self._roster.bit(worker_id)):
            return
        rows, seats = self._table.locate(_distinct(_keys(event.hashes)))
        if not rows.all():
            known = rows.nonzero()[0]
            rows, seats = rows[known], seats[known]
        if len(rows):
            self._release(worker_id, rows, seats, lambda holders: holders.lacking(event.tier, bit))

    def _clear(self, worker_id: str) -> None:
        bit = self._roster.bit(worker_id)
        for rows in self._rows_of(worker_id):
            self._release_rows(worker_id, rows, bit)

    def _release_rows(self, worker_id: str, rows: Rows, bit: int) -> None:
        """The worker holds these blocks no more, on any tier."""
        if len(rows):
            seats = self._table.locate(self._table.keys_at(rows))[1]
            self._release(worker_id, rows, seats, lambda holders: holders.without(bit))

    def _release(self, worker_id: str, rows: Rows, seats: Rows, change: Callable[[Holders], Holders]) -> None:
        """Change holders of blocks, and forget the blocks that nobody holds any more."""
        ids = self._change(worker_id, rows, change)
        if ids == {NOBODY}:
            self._table.erase(rows, seats)
        elif NOBODY in ids:
            free = (self._table.holders.take(rows) == NOBODY).nonzero()[0]
            self._table.erase(rows[free], seats[free])

    def _change(self, worker_id: str, rows: Rows, change: Callable[[Holders], Holders]) -> set[int]:
        """Change the holders of blocks as far as they concern one worker; the ids that these have now."""
        ids = self._table.holders.take(rows).tolist()
        if ids.count(ids[0]) == len(ids):  # as a rule: blocks in a row have the same holders
            id_ = self._changed(worker_id, ids[0], len(ids), change(self._sets[ids[0]]))
            self._table.holders[rows] = id_
            return {id_}
        changed = {id_: self._changed(worker_id, id_, n, change(self._sets[id_])) for id_, n in Counter(ids).items()}
        self._table.holders[rows] = [changed[id_] for id_ in ids]
        return set(changed.values())

    def _changed(self, worker_id: str, id_: int, count: int, after: Holders) -> int:
        """The id for so many blocks that had the set `id_` and now have the holders `after`."""
        bit, before = self._roster.bit(worker_id), self._sets[id_]
        if len(self._sets) >= self._max_sets and after not in self._sets:
            after = after.only(bit)
            for other in self._roster.named(before.anywhere & ~bit):
                self.forgotten += count
                self._count(other, -count)
        if change := bool(after.anywhere & bit) - bool(before.anywhere & bit):
            self._count(worker_id, count * change)
        return self._sets.move(id_, after, count)

    def _count(self, worker_id: str, blocks: int) -> None:
        self._held[worker_id] += blocks
        self._size += blocks

    def _rows_of(self, worker_id: str) -> Iterator[Rows]:
        """The rows of all blocks that a worker holds, stretch by stretch."""
        left, start = self._held[worker_id], 1
        wanted = self._sets.having(self._roster.bit(worker_id))
        while left:
            rows, start = self._table.scan(wanted, start)
            left -= len(rows)
            yield rows

    def _give_up(self) -> None:
        """Above the bound: the worker with most blocks gives up the deepest in the next stretch of rows."""
        worker_id = max(self._held, key=lambda name: (self._held[name], name))
        bit = self._roster.bit(worker_id)
        rows, self._hand = self._table.scan(self._sets.having(bit), self._hand)
        count = min(len(rows), max(self._size - self.max_blocks, len(rows) // GIVEN_UP))
        deepest = np.argsort(self._table.depths.take(rows), kind="stable")[len(rows) - count :]
        self.forgotten += count
        self._release_rows(worker_id, rows[deepest], bit)


def _keys(hashes: Sequence[bytes]) -> Keys:
    """As the table takes them: NumPy indexes and shifts signed words."""
    return keys_of(hashes).view(np.int64)


def _distinct(keys: Keys) -> Keys:
    """Each key once, in order of the first time."""
    ordered = np.sort(keys)
    return np.array(list(dict.fromkeys(keys.tolist())), np.int64) if (ordered[1:] == ordered[:-1]).any() else keys


def _pieces(keys: Keys) -> Iterator[Keys]:
    return (keys[first : first + AT_ONCE] for first in range(0, len(keys), AT_ONCE))


def _depths(snapshot: Snapshot) -> dict[int, int]:
    """Blocks before each block, by key."""
    depths: dict[int, int] = {}
    keys = _keys([block.hash for block in snapshot.blocks]).tolist()
    parents = _keys([block.parent or block.hash for block in snapshot.blocks]).tolist()
    for block, key, parent in zip(snapshot.blocks, keys, parents, strict=True):
        depths[key] = 0 if block.parent is None else depths.get(parent, DEEPEST) + 1
    return depths
