"""A hash table from 64-bit keys to rows, made to be asked for a whole prompt at once."""

import sys
from typing import Final

import numpy as np
from numpy.typing import NDArray

SEATS: Final = 16  # per bucket: its keys are two cache lines, and hardly a bucket is ever full
FILL: Final = 0.6  # of all seats; above it the table grows. Of the keys, 1 in 300 then finds its bucket full
SPLIT: Final = 128  # buckets split at once, in about 100 us
FIRST_BUCKETS: Final = 64

_BITS: Final = SEATS.bit_length() - 1
_SEAT: Final = SEATS - 1

Rows = NDArray[np.int64]
Keys = NDArray[np.int64]


class KeyTable:
    """Open addressing in buckets of eight seats over numpy arrays; every operation takes a vector of keys.

    key      64 bits of a hash, evenly spread, never 0
    row      1..2**32-1, chosen by the caller; 0 is none
    Before   keys given to `enter` are distinct and not in the table; those given to `erase` are in it

    The low bits of a key name its bucket. A key whose bucket is full lies in a small dict and not in another bucket,
    so that a look-up reads one line of keys for each, and asks the dict only for what it did not find.

    Growth is linear hashing (Litwin 1980): buckets are split one after another, some with each insertion, until
    there are twice as many. The columns are reserved at full length, but touched and so paid for only as far as there
    are buckets: nothing is ever copied as a whole, and a look-up is never kept waiting.
    """

    def __init__(self, capacity: int) -> None:
        buckets = max(FIRST_BUCKETS, 1 << int(capacity / (FILL * SEATS)).bit_length())
        self._keys = np.zeros((buckets, SEATS), np.int64)
        self._rows = np.zeros((buckets, SEATS), np.uint32)
        self._overflow: dict[int, int] = {}
        self._whole = FIRST_BUCKETS  # buckets when this round of splitting began, a power of two
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
        seat = self._keys.itemsize + self._rows.itemsize
        return int(self.buckets * SEATS * seat) + sys.getsizeof(self._overflow) + 64 * len(self._overflow)

    def find(self, keys: Keys) -> Rows:
        """The row of each key, 0 where it has none."""
        home, hits = self._hits(keys)
        if len(hits) == len(keys):  # one in each line
            found: Rows = self._rows.take((home << _BITS) + (hits & _SEAT)).astype(np.int64)
            return found
        rows = np.zeros(len(keys), np.int64)
        if len(hits):
            lines = hits >> _BITS
            rows[lines] = self._rows.take((home.take(lines) << _BITS) + (hits & _SEAT))
        return self._with_overflow(keys, rows)

    def locate(self, keys: Keys) -> tuple[Rows, Rows]:
        """(rows, seats): the seat is where the table keeps the key, -1 in the overflow or nowhere."""
        home, hits = self._hits(keys)
        rows, seats = np.zeros(len(keys), np.int64), np.full(len(keys), -1)
        lines = hits >> _BITS
        seats[lines] = at = (home.take(lines) << _BITS) + (hits & _SEAT)
        rows[lines] = self._rows.take(at)
        return (rows if len(hits) == len(keys) else self._with_overflow(keys, rows)), seats

    def _hits(self, keys: Keys) -> tuple[Rows, Rows]:
        """(bucket of each key, those found there): the upper bits of a hit say which key, the lower which seat."""
        home = self._home(keys)
        return home, (self._keys.take(home, axis=0) == keys[:, None]).ravel().nonzero()[0]

    def _with_overflow(self, keys: Keys, rows: Rows) -> Rows:
        """The rows, completed by those of keys that are not in their buckets."""
        if self._overflow:
            missing = (rows == 0).nonzero()[0]
            listed = keys.take(missing).tolist()
            if not self._overflow.keys().isdisjoint(listed):
                rows[missing] = [self._overflow.get(key, 0) for key in listed]
        return rows

    def enter(self, keys: Keys, rows: Rows) -> None:
        """Give new keys their rows."""
        self._count += len(keys)
        for _ in range(0, len(keys), SPLIT):
            self._grow()
        seated, taken = self._keys.reshape(-1), self._rows.reshape(-1)
        while len(keys):
            home = self._home(keys)
            seats = (home << _BITS) + (self._keys.take(home, axis=0) == 0).argmax(axis=1)
            if len(full := seated.take(seats).nonzero()[0]):  # no seat was free, and argmax names the first
                self._overflow.update(zip(keys.take(full).tolist(), rows.take(full).tolist(), strict=True))
                keys, rows, seats = (np.delete(column, full) for column in (keys, rows, seats))
            # Where two keys want one seat the last one written has it, and the others look again.
            seated[seats], taken[seats] = keys, rows
            lost = (seated.take(seats) != keys).nonzero()[0]
            keys, rows = keys[lost], rows[lost]

    def erase(self, keys: Keys, seats: Rows) -> None:
        """Forget keys, with their seats as `locate` gave them."""
        self._count -= len(keys)
        if self._overflow and seats.min() < 0:
            outside = (seats < 0).nonzero()[0]
            for key in keys.take(outside).tolist():
                del self._overflow[key]
            seats = np.delete(seats, outside)
        self._keys.reshape(-1)[seats] = 0

    def _home(self, keys: Keys) -> Rows:
        """The bucket of each key: one more of its bits counts where the bucket is split already."""
        if not self._split:
            return keys & (self._whole - 1)
        home = keys & (2 * self._whole - 1)
        return np.where(home < self._whole + self._split, home, home - self._whole)

    def _grow(self) -> None:
        """Split the next buckets, if that is due: a key stays, or moves to its bucket's twin as its next bit says."""
        if not self._split and self._count <= FILL * SEATS * self._whole:
            return
        count = min(SPLIT, self._whole - self._split)
        old, new = (slice(first + self._split, first + self._split + count) for first in (0, self._whole))
        stays = (self._keys[old] & self._whole) == 0
        for column in (self._rows, self._keys):
            column[new] = np.where(stays, 0, column[old])
        self._keys[old] *= stays
        self._split += count
        if self._split == self._whole:
            self._whole, self._split = 2 * self._whole, 0
