"""A hash table from 64-bit keys to rows, made to be asked for a whole prompt at once."""

import struct
import sys
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cacheplane.column import column

SEATS: Final = 16  # per bucket: its keys are two cache lines, and hardly a bucket is ever full
FILL: Final = 0.6  # of all seats; above it the table grows. Of the keys, 1 in 300 then finds its bucket full
SPLIT: Final = 128  # buckets split when a few keys are entered, in about 100 us; when many are, one for every four
OUTSIDE: Final = 255  # the seat of a key whose bucket is full
FIRST_BUCKETS: Final = 64

_LINE: Final = struct.Struct(f"{SEATS}q")
_BITS: Final = SEATS.bit_length() - 1
_SEAT: Final = SEATS - 1
_SHIFT: Final = np.array(_BITS)  # an array: NumPy takes as long to make one of a Python integer as for what follows

Rows = NDArray[np.int64] | NDArray[np.uint32]
Keys = NDArray[np.int64]
Seats = NDArray[np.int64] | NDArray[np.uint8]


class KeyTable:
    """Open addressing in buckets of 16 seats over numpy arrays; every operation takes a vector of keys.

    key      64 bits of a hash, evenly spread, never 0
    row      1..2**32-1, chosen by the caller; 0 is none
    seat     place of a key in its bucket; it keeps it when buckets are split
    Before   keys given to `erase` are in the table

    The low bits of a key name its bucket. A key whose bucket is full lies in a small dict and not in another bucket,
    so that a look-up reads one line of keys for each, and asks the dict only for those that are not there.

    Growth is linear hashing (Litwin 1980): buckets are split one after another, some with each insertion, until
    there are twice as many. The columns are reserved at full length, but touched and so paid for only as far as
    there are buckets: nothing is ever copied as a whole, and a look-up is never kept waiting.
    """

    def __init__(self, capacity: int) -> None:
        buckets = max(FIRST_BUCKETS, 1 << int(capacity / (FILL * SEATS)).bit_length())
        # By seat, and by bucket. Behind the last bucket is one more seat, for what finds no other.
        self._nowhere = buckets * SEATS
        self._key_at, self._row_at = column(self._nowhere + 1, np.int64), column(self._nowhere + 1, np.uint32)
        self._keys, self._rows = (seats[:-1].reshape(-1, SEATS) for seats in (self._key_at, self._row_at))
        self._one_key, self._one_row = self._key_at.data, self._row_at.data
        self._overflow: dict[int, int] = {}
        self._whole = FIRST_BUCKETS  # buckets when this round of splitting began, a power of two
        self._low = np.array(FIRST_BUCKETS - 1)  # the bits of a key that name its bucket, but for those that are split
        self._split = 0  # how many of them are split
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def buckets(self) -> int:
        return self._whole + self._split

    @property
    def nbytes(self) -> int:
        """Memory in use: the buckets that there are, and the overflow at about 64 bytes for key and row."""
        bucket = SEATS * (self._keys.itemsize + self._rows.itemsize)
        return int(self.buckets * bucket) + sys.getsizeof(self._overflow) + 64 * len(self._overflow)

    def row(self, key: int) -> int:
        """The row of one key, 0 where it has none, in a fifth of the time that a vector of one takes."""
        first = self._home_of(key) << _BITS
        line = _LINE.unpack_from(self._one_key, first << 3)
        return self._one_row[first + line.index(key)] if key in line else self._overflow.get(key, 0)

    def find(self, keys: Keys) -> Rows:
        """The row of each key, 0 where it has none."""
        home = self._home(keys)
        hits = (self._keys.take(home, axis=0) == keys[:, None]).ravel().nonzero()[0]
        if len(hits) == len(keys):  # one in each line
            found: Rows = self._row_at.take((home << _SHIFT) + (hits & _SEAT)).astype(np.int64)
            return found
        rows = np.zeros(len(keys), np.int64)
        if len(hits):  # the upper bits of a hit say which key, the lower which seat
            lines = hits >> _BITS
            rows[lines] = self._row_at.take((home.take(lines) << _SHIFT) + (hits & _SEAT))
        for each in self._outside(keys):
            rows[each] = self._overflow[keys.item(each)]
        return rows

    def _outside(self, keys: Keys) -> list[int]:
        """Which of the keys lie in the overflow."""
        if not self._overflow or self._overflow.keys().isdisjoint(wanted := keys.tolist()):
            return []
        return [each for each, key in enumerate(wanted) if key in self._overflow]

    def enter(self, keys: Keys, rows: Rows) -> Seats | None:
        """Give keys their rows, if all keys are new and no two alike; else None, and nothing is entered.

        returns   where in its bucket each key sits, as long as it is here
        """
        self._grow(len(keys))
        home = self._home(keys)
        lines = self._keys.take(home, axis=0)
        if True in (lines.ravel() == keys.repeat(SEATS)).tobytes() or self._outside(keys):
            return None
        seats: Seats = lines.astype(np.bool_).argmin(axis=1)
        at = (home << _SHIFT) + seats
        if len(full := self._key_at.take(at).nonzero()[0]):  # no seat was free, and argmin names the first
            at[full] = self._nowhere
        self._row_at[at] = rows
        self._row_at[self._nowhere] = 0
        # Of two that want one seat, it has the last one written. The others look again, if no key comes twice.
        lost = (self._row_at.take(at) != rows).nonzero()[0]
        if len(lost) and np.count_nonzero(keys.take(lost)[:, None] == keys) > len(lost):
            return None
        self._key_at[at] = keys
        for each in lost.tolist():
            seats[each] = self._enter_one(keys.item(each), rows.item(each))
        self._count += len(keys)
        return seats

    def _enter_one(self, key: int, row: int) -> int:
        home = self._home_of(key)
        line = self._keys[home].tolist()
        if 0 not in line:
            self._overflow[key] = row
            return OUTSIDE
        seat: int = line.index(0)
        self._keys[home, seat], self._rows[home, seat] = key, row
        return seat

    def erase(self, keys: Keys, seats: NDArray[np.uint8]) -> None:
        """Forget keys, with their seats as `enter` gave them."""
        self._count -= len(keys)
        if self._overflow and OUTSIDE in seats.tobytes():
            outside = seats == OUTSIDE
            for key in keys[outside].tolist():
                del self._overflow[key]
            keys, seats = keys[~outside], seats[~outside]
        self._key_at[(self._home(keys) << _SHIFT) + seats] = 0

    def _home(self, keys: Keys) -> Rows:
        """The bucket of each key: one more of its bits counts where the bucket is split already."""
        if not self._split:
            low: Rows = keys & self._low
            return low
        home = keys & (2 * self._whole - 1)
        return np.where(home < self._whole + self._split, home, home - self._whole)

    def _home_of(self, key: int) -> int:
        home = key & (2 * self._whole - 1)
        return home if home < self._whole + self._split else home - self._whole

    def _grow(self, coming: int) -> None:
        """Make room for so many keys, as far as a look-up may wait for it."""
        left = max(SPLIT, coming // 4)
        while left and (self._split or self._count + coming > FILL * SEATS * self._whole):
            count = min(left, self._whole - self._split)
            self._split_next(count)
            left -= count

    def _split_next(self, count: int) -> None:
        """Split buckets: a key stays, or moves to the same seat of its bucket's twin, as its next bit says."""
        old, new = (slice(first + self._split, first + self._split + count) for first in (0, self._whole))
        moves = (self._keys[old] & self._whole).astype(np.bool_)
        self._rows[new] = self._rows[old]  # a row without its key is nobody's
        np.copyto(self._keys[new], self._keys[old], where=moves)
        np.putmask(self._keys[old], moves, 0)
        self._split += count
        if self._split == self._whole:
            self._whole, self._split = 2 * self._whole, 0
            self._low = np.array(self._whole - 1)
