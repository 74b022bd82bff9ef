"""What became of blocks that were cached once: a bounded memory of departures, beside the index."""

import enum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cacheplane.identity import keys_of
from cacheplane.index import PrefixIndex
from cacheplane.wire import AllBlocksCleared, Batch, BlockRemoved, Tier

Keys = NDArray[np.uint64]

SLOTS: Final = 1 << 20  # 9 MiB once all of them are in use
CLEARED: Final = "cleared"


class Cause(enum.IntEnum):
    """How a block left its last place, as far as is known."""

    UNKNOWN = 0
    EVICTED = 1  # from a device, or cleared by its worker
    TIER_DROPPED = 2  # from host or disk, where its last copy was
    WORKER_LOST = 3  # the process that held it is gone


class Departures:
    """Stands where a stream meets the index: passes everything on to it, and remembers which blocks left, and how.

    The last departure of a block counts. That it came back, or that another worker has it too, is the index's to know:
    whoever asks here has not found the block there.

    Bound: a table of `slots` entries of 9 bytes, a power of two. A block whose place is taken by a later one is
    forgotten, which costs an answer and never invents one but for a collision of 64 bits.
    """

    def __init__(self, index: PrefixIndex, slots: int = SLOTS) -> None:
        if slots < 1 or slots & (slots - 1):
            raise ValueError("the number of slots is a power of two")
        self._index = index
        self._mask = np.uint64(slots - 1)
        self._keys = np.zeros(slots, np.uint64)
        self._causes = np.zeros(slots, np.uint8)

    def apply(self, worker_id: str, batch: Batch) -> None:
        for event in batch.events:
            match event:
                case BlockRemoved():
                    dropped = event.tier is not Tier.DEVICE and event.reason != CLEARED
                    self._note(keys_of(event.hashes), Cause.TIER_DROPPED if dropped else Cause.EVICTED)
                case AllBlocksCleared():
                    self.clear(worker_id)
        self._index.apply(worker_id, batch)

    def clear(self, worker_id: str, most: int | None = None) -> int:
        """A snapshot follows. What it lists no more left while nobody was listening; the rest is found again."""
        self._note(self._index.forget(worker_id, most), Cause.EVICTED)
        return self._index.blocks(worker_id)

    def trust(self, worker_id: str) -> None:
        self._index.trust(worker_id)

    def doubt(self, worker_id: str) -> None:
        self._index.doubt(worker_id)

    def drop(self, worker_id: str, most: int | None = None) -> int:
        self._note(self._index.forget(worker_id, most), Cause.WORKER_LOST)
        return self._index.drop(worker_id, 0)

    def causes(self, keys: Keys) -> NDArray[np.uint8]:
        """The `Cause` of each key, UNKNOWN where no departure is remembered."""
        places = (keys & self._mask).view(np.int64)  # as NumPy indexes
        return np.where(self._keys.take(places) == keys, self._causes.take(places), np.uint8(Cause.UNKNOWN))

    def _note(self, keys: Keys, cause: Cause) -> None:
        places = keys & self._mask
        self._keys[places] = keys
        self._causes[places] = cause
