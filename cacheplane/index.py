"""The prefix index: for each block, which workers hold it and on which tier."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cacheplane.blocktable import AT_ONCE, DEEPEST, BlockTable, Where, uniform
from cacheplane.holders import NOBODY, Change, Holders, HolderSets
from cacheplane.identity import key_of, keys_of
from cacheplane.keytable import Keys, Rows
from cacheplane.overlap import Overlap, overlaps
from cacheplane.roster import Roster
from cacheplane.wire import AllBlocksCleared, Batch, BlockRemoved, BlockStored, Tier

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
        self._swept: dict[str, int] = {}  # of workers that are being cleared: they hold nothing before this row

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

    def synced(self, worker_id: str) -> bool:
        """Whether the worker's stream is whole, so that a block not found is a block not held."""
        return worker_id in self._synced

    def match(self, keys: NDArray[np.uint64]) -> dict[str, Overlap]:
        """The overlap of every worker that holds at least the first block of the chain with these keys."""
        found: dict[str, Overlap] = {}
        for workers, overlap in overlaps(self._runs(self._table.chain(keys.view(np.int64)))):
            found |= dict.fromkeys(self._roster.named(workers), overlap)
        return found

    def _runs(self, pieces: Sequence[NDArray[np.uint32]]) -> list[tuple[int, Holders]]:
        """(blocks in a row with the same holders, these)."""
        runs = []
        for ids in pieces:
            if uniform(ids):
                runs.append((len(ids), self._sets[ids.item(0)]))
                continue
            before = -1
            for last in [*(ids[1:] != ids[:-1]).nonzero()[0].tolist(), len(ids) - 1]:
                runs.append((last - before, self._sets[ids.item(last)]))
                before = last
        return runs

    def apply(self, worker_id: str, batch: Batch) -> None:
        """The events of one message, in order; the stream decides whether a message may be applied."""
        for event in batch.events:
            match event:
                case BlockStored():
                    self._store(worker_id, event)
                case BlockRemoved():
                    self._remove(worker_id, event)
                case AllBlocksCleared():
                    self.clear(worker_id)

    def clear(self, worker_id: str, most: int | None = None) -> int:
        """The worker holds nothing, or nothing is known of what it holds.

        most      blocks to forget, for who lets others have their turn before it goes on; None for all of them
        returns   blocks that are left
        """
        self.forget(worker_id, most)
        return self._held[worker_id]

    def forget(self, worker_id: str, most: int | None = None) -> NDArray[np.uint64]:
        """The same, and the keys of the blocks that it does not hold any more, in no order."""
        bit, held = self._roster.bit(worker_id), self._held[worker_id]
        wanted, left = self._sets.having(bit), held if most is None else min(held, most)
        keys, at = [np.empty(0, np.int64)], self._swept.pop(worker_id, 1)
        while left:
            (rows, behind), before = self._table.scan(wanted, at), at
            rows = rows[:left]
            left -= len(rows)
            keys.append(self._table.keys_at(rows))
            self._release_rows(worker_id, rows, bit)
            at = behind if left else before
        if self._held[worker_id]:
            self._swept[worker_id] = at
        return np.concatenate(keys).view(np.uint64)

    def trust(self, worker_id: str) -> None:
        """From now on the worker's stream is whole: it holds what is here and nothing else."""
        self._synced.add(worker_id)

    def doubt(self, worker_id: str) -> None:
        """The worker's stream is broken: its blocks stay as a hint, until `trust` synced no more."""
        self._synced.discard(worker_id)

    def drop(self, worker_id: str, most: int | None = None) -> int:
        """The worker is gone, or holds nothing that is known; `most` and what is returned as for `clear`."""
        self._synced.discard(worker_id)
        if left := self.clear(worker_id, most):
            return left
        self._roster.leave(worker_id)
        self._held.pop(worker_id, None)  # its name may never come again
        return 0

    def _store(self, worker_id: str, event: BlockStored) -> None:
        """Blocks in chain order behind their parent."""
        if event.tier not in _TIERS or not event.hashes:
            return
        parent = None if event.parent is None else key_of(event.parent)
        for piece in _pieces(_keys(event.hashes)):
            behind = 0 if parent is None else self._table.row(parent)
            depth = 0 if parent is None else self._table.depths.item(behind) + 1 if behind else DEEPEST
            self._hold(worker_id, event.tier, piece, depth, behind)
            parent = piece.item(-1)

    def _hold(self, worker_id: str, tier: Tier, keys: Keys, depth: int, behind: int) -> None:
        """From now on the worker holds these blocks on this tier; as a rule all or none of them are here."""
        change = Change(self._roster.enrol(worker_id), tier, True)
        self._swept.pop(worker_id, None)
        if known := self._table.stretch(keys):
            self._change(worker_id, known, change)
        elif not self._enter(worker_id, change, keys, depth, behind):
            self._hold_each(worker_id, change, keys, depth, behind)
        while self._size > self.max_blocks:
            self._give_up()

    def _enter(self, worker_id: str, change: Change, keys: Keys, depth: int | Rows, behind: int) -> bool:
        """Whether all of the blocks are new, and are entered."""
        if (rows := self._table.enter(keys, depth, behind)) is None:
            return False
        self._table.holders[rows] = self._changed(worker_id, NOBODY, len(keys), change)
        return True

    def _hold_each(self, worker_id: str, change: Change, keys: Keys, depth: int, behind: int) -> None:
        """The same where some blocks are new and some not, or some are named twice."""
        keys = _distinct(keys)
        rows = self._table.find(keys)
        new = (rows == 0).nonzero()[0]
        if len(new):
            first = new.item(0)
            self._enter(worker_id, change, keys[new], depth + new, rows.item(first - 1) if first else behind)
        if len(new) < len(rows):
            self._change(worker_id, rows[rows != 0], change)

    def _remove(self, worker_id: str, event: BlockRemoved) -> None:
        if event.tier not in _TIERS or not event.hashes or not (bit := self._roster.bit(worker_id)):
            return
        keys, change = _keys(event.hashes), Change(bit, event.tier)
        if known := self._table.stretch(keys):
            self._release(worker_id, known, change)
            return
        rows = self._table.find(_distinct(keys))
        if np.count_nonzero(rows):
            self._release(worker_id, rows[rows != 0], change)

    def _release_rows(self, worker_id: str, rows: Rows, bit: int) -> None:
        """The worker holds these blocks no more, on any tier."""
        if len(rows):
            self._release(worker_id, rows, Change(bit))

    def _release(self, worker_id: str, where: Where, change: Change) -> None:
        """Change holders of blocks, and forget the blocks that nobody holds any more."""
        ids = self._change(worker_id, where, change)
        if ids == {NOBODY}:
            self._table.erase(where)
        elif NOBODY in ids:
            rows = np.arange(where.start, where.stop) if isinstance(where, slice) else where
            self._table.erase(rows[self._table.holders[where] == NOBODY])

    def _change(self, worker_id: str, where: Where, change: Change) -> set[int]:
        """Change the holders of blocks as far as they concern one worker; the ids that these have now."""
        before = self._table.holders[where]
        if uniform(before):  # as a rule: blocks in a row have the same holders
            self._table.holders[where] = id_ = self._changed(worker_id, before.item(0), len(before), change)
            return {id_}
        ids = before.tolist()
        changed = {id_: self._changed(worker_id, id_, n, change) for id_, n in Counter(ids).items()}
        self._table.holders[where] = [changed[id_] for id_ in ids]
        return set(changed.values())

    def _changed(self, worker_id: str, id_: int, count: int, change: Change) -> int:
        """The id for so many blocks that had the set `id_`, after the change."""
        if len(self._sets) >= self._max_sets and change.of(self._sets[id_]) not in self._sets:
            change = change._replace(alone=True)
            for other in self._roster.named(self._sets[id_].anywhere & ~change.bit):
                self.forgotten += count
                self._count(other, -count)
        after, come = self._sets.move(id_, change, count)
        if come:
            self._count(worker_id, count * come)
        return after

    def _count(self, worker_id: str, blocks: int) -> None:
        self._held[worker_id] += blocks
        self._size += blocks

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
    once = dict.fromkeys(keys.tolist())
    return keys if len(once) == len(keys) else np.array(list(once), np.int64)


def _pieces(keys: Keys) -> Iterator[Keys]:
    return (keys[first : first + AT_ONCE] for first in range(0, len(keys), AT_ONCE))
