"""The columns of the prefix index: one row per block, found by the keys of a whole prompt at once."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from cacheplane.keytable import Keys, KeyTable, Rows
from cacheplane.places import Places

STRIDE: Final = 16  # blocks of a prompt from one that is looked up to the next; those between are guessed and checked
AT_ONCE: Final = 4_096  # rows entered in one go, at most
DEEPEST: Final = int(np.iinfo(np.uint16).max)  # also the depth of a block whose parent is not known
SCANNED: Final = 1 << 16  # rows per stretch of a scan, so that it stays in the processor's cache

_OFFSETS: Final = np.arange(STRIDE)


class BlockTable:
    """Blocks by key, each with the id of its set of holders and its depth.

    holders, depths   uint32 and uint16 columns by row; holders is 0 where a row is free
    Rows              of one chain lie one behind the other where they can (`Places`)
    Bound             `max_blocks`, reserved at once and paid for page by page
    """

    def __init__(self, max_blocks: int) -> None:
        length = Places.room(max_blocks, AT_ONCE) + STRIDE
        self.holders = np.zeros(length, np.uint32)
        self.depths = np.zeros(length, np.uint16)
        self._places = Places(self.holders[:-STRIDE])
        self._keys = np.zeros(length, np.int64)
        self._table = KeyTable(max_blocks + AT_ONCE)
        self.find, self.locate = self._table.find, self._table.locate

    def __len__(self) -> int:
        return len(self._table)

    @property
    def nbytes(self) -> int:
        """Memory in use, without what is only reserved."""
        row = self.holders.itemsize + self.depths.itemsize + self._keys.itemsize
        return self._places.top * row + self._table.nbytes

    def chain(self, keys: Keys) -> Rows:
        """The rows of the blocks of a prompt, up to the first that is not here.

        Every 16th block is looked up. The blocks behind it most likely lie in the rows behind its row, which one
        comparison of keys proves; the others are looked up too.
        """
        anchors = self._table.find(keys[::STRIDE])
        rows = (anchors[:, None] + _OFFSETS).reshape(-1)[: len(keys)]
        wrong = (self._keys.take(rows) != keys).nonzero()[0]
        return self._corrected(keys, anchors, rows, wrong) if len(wrong) else rows

    def _corrected(self, keys: Keys, anchors: Rows, rows: Rows, wrong: Rows) -> Rows:
        """The rows of `chain` where some were guessed wrong, up to the first block that is really not here."""
        if not anchors.all():  # beyond this one nothing counts
            end = int(anchors.argmin()) * STRIDE
            keys, rows, wrong = keys[:end], rows[:end], wrong[wrong < end]
        found = self._table.find(keys.take(wrong))
        rows[wrong] = found
        return rows if found.all() else rows[: wrong[found.argmin()]]

    def enter(self, keys: Keys, depths: Rows, behind: int, holders: int) -> None:
        """Enter new, distinct keys with their holders, behind the row of the block before them, 0 for none."""
        rows = self._places.take(len(keys), behind)
        where = _span(rows)
        self._table.enter(keys, rows)
        self._keys[where], self.holders[where] = keys, holders
        self.depths[where] = np.minimum(depths, DEEPEST)

    def erase(self, rows: Rows, seats: Rows) -> None:
        """Free rows, and nobody holds what was in them."""
        self._table.erase(self._keys.take(rows), seats)
        self._keys[rows] = 0
        self.holders[rows] = 0
        self._places.give_back(len(rows))

    def keys_at(self, rows: Rows) -> Keys:
        return self._keys.take(rows)

    def scan(self, wanted: NDArray[np.bool_], start: int) -> tuple[Rows, int]:
        """(rows whose set of holders is wanted, where to go on) of the stretch at `start`.

        wanted   by id of the set
        start    behind the last row the first one comes again
        """
        first = start if start < self._places.top else 1
        end = min(first + SCANNED, self._places.top)
        return wanted[self.holders[first:end]].nonzero()[0] + first, end


def _span(rows: Rows) -> Rows | slice:
    """Rows in rising order, as a slice where none is between them: writing through it takes a fifth of the time."""
    first, last = rows.item(0), rows.item(-1)
    return slice(first, last + 1) if last - first == len(rows) - 1 else rows
