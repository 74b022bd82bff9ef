"""The columns of the prefix index: one row per block, found by the keys of a whole prompt at once."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from cacheplane.column import column
from cacheplane.keytable import Keys, KeyTable, Rows
from cacheplane.places import Places

STRIDE: Final = 16  # blocks of a prompt from one that is looked up to the next; those between are guessed and checked
AT_ONCE: Final = 1_024  # rows entered in one go, at most
DEEPEST: Final = int(np.iinfo(np.uint16).max)  # also the depth of a block whose parent is not known
SCANNED: Final = 1 << 16  # rows per stretch of a scan, so that it stays in the processor's cache
LEAPS: Final = 4  # stretches of rows that a look-up follows one by one, before it looks for all others at once

Where = Rows | slice

_DIFFERS: Final = b"\0"  # a bool that is false, as bytes: to look for it there takes half of the time of `argmin`
_OFFSETS: Final = np.arange(STRIDE)
_DEPTHS: Final = np.minimum(np.arange(DEEPEST + 1 + AT_ONCE), DEEPEST).astype(np.uint16)


class BlockTable:
    """Blocks by key, each with the id of its set of holders and its depth.

    holders, depths   uint32 and uint16 columns by row; holders is 0 where a row is free, and the caller writes it
    Rows              of one chain lie one behind the other where they can (`Places`)
    Bound             `max_blocks`, reserved at once and paid for page by page
    """

    def __init__(self, max_blocks: int) -> None:
        length = Places.room(max_blocks, AT_ONCE) + STRIDE
        self.holders = column(length, np.uint32)
        self.depths = column(length, np.uint16)
        self._places = Places(self.holders[:-STRIDE])
        self._keys = column(length, np.int64)
        self._seats = column(length, np.uint8)
        self._table = KeyTable(max_blocks + AT_ONCE)
        self.row, self.find = self._table.row, self._table.find

    def __len__(self) -> int:
        return len(self._table)

    @property
    def nbytes(self) -> int:
        """Memory in use, without what is only reserved."""
        row = self.holders.itemsize + self.depths.itemsize + self._keys.itemsize + self._seats.itemsize
        return self._places.top * row + self._table.nbytes

    def stretch(self, keys: Keys) -> slice | None:
        """The rows of these blocks, if all are here and lie one behind the other, in this order or in the reverse."""
        if not (first := self.row(keys.item(0))):
            return None
        rows = slice(first, first + len(keys))
        if self._keys[rows].tobytes() == keys.tobytes():
            return rows
        rows = slice(max(first + 1 - len(keys), 0), first + 1)
        return rows if self._keys[rows].tobytes() == keys[::-1].tobytes() else None

    def chain(self, keys: Keys) -> list[NDArray[np.uint32]]:
        """The holders of the blocks of a prompt in pieces, up to the first that is not here.

        As a rule a prompt lies in a few stretches of rows. The first block of one is looked up, and one comparison
        of keys proves how far it goes.
        """
        found, at = [], 0
        for _ in range(LEAPS):
            if at == len(keys) or not (row := self.row(keys.item(at))):
                break
            count = _alike(self._keys[row : row + len(keys) - at], keys[at:])
            found.append(self.holders[row : row + count])
            at += count
        else:
            if len(rows := self._rows_along(keys[at:])):
                found.append(self.holders.take(rows))
        return found

    def _rows_along(self, keys: Keys) -> Rows:
        """The rows of the blocks of a prompt that lies in many stretches.

        Every 16th block is looked up. The blocks behind it most likely lie in the rows behind its row, which one
        comparison of keys proves; the others are looked up too.
        """
        anchors = self._table.find(keys[::STRIDE])
        rows = (anchors[:, None] + _OFFSETS).reshape(-1)[: len(keys)]
        wrong = (self._keys.take(rows) != keys).nonzero()[0]
        return self._corrected(keys, anchors, rows, wrong) if len(wrong) else rows

    def _corrected(self, keys: Keys, anchors: Rows, rows: Rows, wrong: Rows) -> Rows:
        """The same where some were guessed wrong, up to the first block that is really not here."""
        if not anchors.all():  # beyond this one nothing counts
            end = int(anchors.argmin()) * STRIDE
            keys, rows, wrong = keys[:end], rows[:end], wrong[wrong < end]
        found = self._table.find(keys.take(wrong))
        rows[wrong] = found
        return rows if found.all() else rows[: wrong[found.argmin()]]

    def enter(self, keys: Keys, depth: int | Rows, behind: int) -> Where | None:
        """Rows for these blocks, which nobody holds yet; None if one is here already or comes twice.

        depth    of the first, if they follow each other, or of each
        behind   the row of the block before the first, 0 for none
        """
        count = len(keys)
        rows = self._places.take(count, behind)
        if (seats := self._table.enter(keys, rows)) is None:
            self._places.give_back(count)
            return None
        where = _span(rows)
        self._keys[where], self._seats[where] = keys, seats
        self.depths[where] = _DEPTHS[depth : depth + count] if isinstance(depth, int) else np.minimum(depth, DEEPEST)
        return where

    def erase(self, where: Where) -> None:
        """Free rows, and nobody holds what was in them."""
        keys = self._keys[where]
        self._table.erase(keys, self._seats[where])
        self._places.give_back(len(keys))
        self._keys[where] = 0
        self.holders[where] = 0

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


def uniform(ids: NDArray[np.uint32]) -> bool:
    """Whether all are the same; to compare their bytes takes a sixth of the time that their numbers take."""
    raw = ids.tobytes()
    return raw == raw[: ids.itemsize] * len(ids)


def _alike(rows: Keys, keys: Keys) -> int:
    """How many keys are alike before the first that are not."""
    same = (rows == keys[: len(rows)]).tobytes()
    return len(same) if (first := same.find(_DIFFERS)) < 0 else first


def _span(rows: Rows) -> Where:
    """The rows that `Places` gave, as a slice if they lie together: writing through it takes a fifth of the time."""
    first, last = rows.item(0), rows.item(-1)
    return slice(first, last + 1) if last - first == len(rows) - 1 else rows
