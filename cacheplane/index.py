"""The prefix index: for each block, which workers hold it and on which tier."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cacheplane.wire import AllBlocksCleared, Batch, BlockRemoved, BlockStored, Snapshot, Tier

# Blocks in storage that the whole fleet shares are no worker's own: they say nothing about where to send a request.
_TIERS: Final = (Tier.DEVICE, Tier.HOST, Tier.DISK)

DEFAULT_MAX_BLOCKS: Final = 4_000_000

KEY_BYTES: Final = 8


def block_keys(hashes: Iterable[bytes]) -> NDArray[np.uint64]:
    """uint64[n], 64 bits of each hash: the first eight bytes as little-endian; a shorter hash ends in zeros."""
    return np.frombuffer(b"".join([name[:KEY_BYTES].ljust(KEY_BYTES, b"\0") for name in hashes]), "<u8")


@dataclass(frozen=True, slots=True)
class Overlap:
    """The longest run of blocks from block 0 that one worker holds, split by where each is loaded from.

    device, host, disk   blocks; a block on several tiers counts for the nearest
    """

    device: int = 0
    host: int = 0
    disk: int = 0

    @property
    def blocks(self) -> int:
        return self.device + self.host + self.disk


class PrefixIndex:
    """Confirmed blocks of all workers, as their event streams tell.

    Before    one stream per worker, applied in order by one task; not thread-safe.
    After     apply is idempotent: storing twice or removing what is not there changes nothing.
    Bound     at most `max_blocks` (worker, block) pairs. Above it the worker with most blocks gives up those that
              it stored last: they are the deepest of their chains, so that what is left still matches from
              block 0. `forgotten` counts them. A forgotten block is a missed hit, never a false one.

    Layout: per tier a dict from hash to a bit mask of worker slots (what a look-up reads), and per worker a
    dict from hash to a bit mask of tiers in order of storing (what makes drop and the bound exact).
    """

    def __init__(self, max_blocks: int = DEFAULT_MAX_BLOCKS) -> None:
        self.max_blocks = max_blocks
        self.forgotten = 0
        self._holders: dict[Tier, dict[bytes, int]] = {tier: {} for tier in _TIERS}
        self._held: dict[str, dict[bytes, int]] = {}
        self._slots: dict[str, int] = {}
        self._names: list[str | None] = []  # by slot, None where it is free
        self._synced: set[str] = set()
        self._size = 0

    def __len__(self) -> int:
        """(worker, block) pairs."""
        return self._size

    def blocks(self, worker_id: str) -> int:
        """Different blocks that a worker holds, on any tier."""
        return len(self._held.get(worker_id, ()))

    def keys(self, worker_id: str) -> NDArray[np.uint64]:
        """uint64[n]: the key of every block that a worker holds, on any tier, in no order."""
        return block_keys(self._held.get(worker_id, ()))

    def synced(self, worker_id: str) -> bool:
        """Whether the worker's stream is whole since its snapshot: a block not found is a block not held."""
        return worker_id in self._synced

    def apply(self, worker_id: str, batch: Batch) -> None:
        """The events of one message, in order; the stream decides whether a message may be applied."""
        for event in batch.events:
            match event:
                case BlockStored():
                    self._store(worker_id, event.hashes, event.tier)
                case BlockRemoved():
                    self._remove(worker_id, event.hashes, event.tier)
                case AllBlocksCleared():
                    self._clear(worker_id)

    def replace(self, worker_id: str, snapshot: Snapshot) -> None:
        """The worker holds exactly what the snapshot lists, whatever was known before."""
        self._clear(worker_id)
        for tier, blocks in groupby(snapshot.blocks, key=lambda block: block.tier):
            self._store(worker_id, [block.hash for block in blocks], Tier(tier))
        self._synced.add(worker_id)

    def doubt(self, worker_id: str) -> None:
        """The worker's stream is broken: its blocks stay as a hint, until the next `replace` synced no more."""
        self._synced.discard(worker_id)

    def drop(self, worker_id: str) -> None:
        """The worker is gone, or holds nothing that is known."""
        self._clear(worker_id)
        self._held.pop(worker_id, None)
        self._synced.discard(worker_id)
        if (slot := self._slots.pop(worker_id, None)) is not None:
            self._names[slot] = None

    def match(self, hashes: Sequence[bytes]) -> dict[str, Overlap]:
        """The overlap of every worker that holds at least the first block of the chain."""
        counts: dict[int, list[int]] = {}
        for masks, run in self._runs(hashes):
            for place, mask in enumerate(masks):
                for slot in _bits(mask):
                    counts.setdefault(slot, [0, 0, 0])[place] += run
        return {name: Overlap(*counts[slot]) for name, slot in self._slots.items() if slot in counts}

    def _runs(self, hashes: Sequence[bytes]) -> Iterator[tuple[tuple[int, int, int], int]]:
        """Which workers load a block from device, host, disk, and over how many blocks in a row that holds.

        A worker leaves the masks at the first block that it does not hold, so neighbouring blocks mostly
        agree, and a look-up costs one dict access per block and little per worker.
        """
        device, host, disk = (self._holders[tier] for tier in _TIERS)
        alive = -1
        masks, run = (0, 0, 0), 0
        for key in hashes:
            near = device.get(key, 0) & alive
            middle = host.get(key, 0) & alive & ~near if near != alive else 0
            far = disk.get(key, 0) & alive & ~near & ~middle if near | middle != alive else 0
            if masks != (near, middle, far):
                yield masks, run
                masks, run = (near, middle, far), 0
            alive = near | middle | far
            if not alive:
                return
            run += 1
        yield masks, run

    def _store(self, worker_id: str, hashes: Sequence[bytes], tier: Tier) -> None:
        if tier not in self._holders:
            return
        held, bit = self._blocks_of(worker_id), 1 << self._slots[worker_id]
        holders = self._holders[tier]
        for key in hashes:
            tiers = held.get(key, 0)
            if not tiers:
                self._size += 1
            held[key] = tiers | 1 << tier
            holders[key] = holders.get(key, 0) | bit
        while self._size > self.max_blocks:
            self._forget_deepest()

    def _remove(self, worker_id: str, hashes: Sequence[bytes], tier: Tier) -> None:
        held = self._held.get(worker_id)
        if held is None or tier not in self._holders:
            return
        bit = 1 << self._slots[worker_id]
        for key in hashes:
            tiers = held.get(key, 0)
            if not tiers >> tier & 1:
                continue
            self._take_bit(tier, key, bit)
            if tiers := tiers & ~(1 << tier):
                held[key] = tiers
            else:
                del held[key]
                self._size -= 1

    def _clear(self, worker_id: str) -> None:
        held = self._held.get(worker_id)
        while held:
            self._forget_last(worker_id, held)

    def _forget_deepest(self) -> None:
        worker_id = max(self._held, key=lambda name: (len(self._held[name]), name))
        self._forget_last(worker_id, self._held[worker_id])
        self.forgotten += 1

    def _forget_last(self, worker_id: str, held: dict[bytes, int]) -> None:
        key, tiers = held.popitem()
        self._size -= 1
        for tier in _TIERS:
            if tiers >> tier & 1:
                self._take_bit(tier, key, 1 << self._slots[worker_id])

    def _take_bit(self, tier: Tier, key: bytes, bit: int) -> None:
        holders = self._holders[tier]
        if left := holders[key] & ~bit:
            holders[key] = left
        else:
            del holders[key]

    def _blocks_of(self, worker_id: str) -> dict[bytes, int]:
        """What the worker holds; a new worker takes the lowest free slot, so masks stay short."""
        if worker_id not in self._slots:
            if None not in self._names:
                self._names.append(None)
            slot = self._names.index(None)
            self._names[slot] = worker_id
            self._slots[worker_id] = slot
        return self._held.setdefault(worker_id, {})


def _bits(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
