"""Sets of holders, each kept once: which workers hold a block, and on which tier."""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cacheplane.wire import Tier

NOBODY: Final = 0  # the id of the empty set
_STEPS_KEPT: Final = 16_384


class Holders(NamedTuple):
    """A bit mask of worker slots for each tier; a worker may be on several."""

    device: int = 0
    host: int = 0
    disk: int = 0

    @property
    def anywhere(self) -> int:
        return self.device | self.host | self.disk

    def having(self, tier: Tier, bit: int) -> "Holders":
        return self._with(tier, self[tier] | bit)

    def lacking(self, tier: Tier, bit: int) -> "Holders":
        return self._with(tier, self[tier] & ~bit)

    def _with(self, tier: Tier, mask: int) -> "Holders":
        device, host, disk = self
        match tier:
            case Tier.DEVICE:
                return Holders(mask, host, disk)
            case Tier.HOST:
                return Holders(device, mask, disk)
            case _:
                return Holders(device, host, mask)

    def without(self, bit: int) -> "Holders":
        """On no tier any more."""
        device, host, disk = self
        return Holders(device & ~bit, host & ~bit, disk & ~bit)

    def only(self, bit: int) -> "Holders":
        device, host, disk = self
        return Holders(device & bit, host & bit, disk & bit)


class Change(NamedTuple):
    """What a worker does to blocks: it holds them on a tier from now on, or no more, and without a tier on none.

    alone   nobody else holds them from now on
    """

    bit: int
    tier: Tier | None = None
    held: bool = False
    alone: bool = False

    def of(self, holders: Holders) -> Holders:
        if self.alone:
            holders = holders.only(self.bit)
        if self.tier is None:
            return holders.without(self.bit)
        return holders.having(self.tier, self.bit) if self.held else holders.lacking(self.tier, self.bit)


class HolderSets:
    """Ids for sets of holders, so that a block costs four bytes however many workers the fleet has.

    Blocks are stored and removed in runs, and whole branches of prompts live on the same workers: a million blocks
    have some hundreds of different sets. What a set costs, 300 bytes or so, is paid once.

    An id lives while blocks use it. Id 0 is the empty set, always there and not counted.
    """

    def __init__(self) -> None:
        self._sets: list[Holders | None] = [Holders()]
        self._uses: list[int] = [0]
        self._ids: dict[Holders, int] = {Holders(): NOBODY}
        self._free: list[int] = []
        self._steps: dict[tuple[int, Change], tuple[int, int]] = {}  # moves that were made, for most come again

    def __len__(self) -> int:
        return len(self._ids) - 1

    def __contains__(self, holders: Holders) -> bool:
        return holders in self._ids

    def __getitem__(self, id_: int) -> Holders:
        if (holders := self._sets[id_]) is None:
            raise KeyError(id_)
        return holders

    def having(self, bit: int) -> NDArray[np.bool_]:
        """By id, whether a worker is in the set on any tier."""
        return np.array([holders is not None and holders.anywhere & bit != 0 for holders in self._sets], np.bool_)

    def move(self, old: int, change: Change, count: int) -> tuple[int, int]:
        """So many blocks of the set `old` are changed.

        returns   (id of the set that they have now, 1 or -1 where the worker has come or gone, else 0)
        """
        step = self._steps.get((old, change))
        if step is None:
            step = self._step(old, change)
        new = step[0]
        self._uses[new] += count
        self._uses[old] -= count
        if old != NOBODY and self._uses[old] == 0:
            self._forget(old)
        return step

    def _step(self, old: int, change: Change) -> tuple[int, int]:
        before = self[old]
        after = change.of(before)
        new = self._ids.get(after)
        if new is None:
            new = self._ids[after] = self._fresh(after)
        if len(self._steps) >= _STEPS_KEPT:
            self._steps.clear()
        come = bool(after.anywhere & change.bit) - bool(before.anywhere & change.bit)
        step = self._steps[old, change] = new, come
        return step

    def _forget(self, id_: int) -> None:
        del self._ids[self[id_]]
        self._sets[id_] = None
        self._free.append(id_)
        self._steps.clear()

    def _fresh(self, holders: Holders) -> int:
        if self._free:
            self._sets[id_ := self._free.pop()] = holders
            return id_
        self._sets.append(holders)
        self._uses.append(0)
        return len(self._sets) - 1
