"""Workers as bits: each has a slot, and a set of workers is a mask."""

from collections.abc import Iterator
from typing import Final

_MASKS_KEPT: Final = 4_096


class Roster:
    """Worker ids and their slots; a new worker takes the lowest free one, so that masks stay short."""

    def __init__(self) -> None:
        self._slots: dict[str, int] = {}
        self._ids: list[str | None] = []  # by slot, None where it is free
        self._named: dict[int, tuple[str, ...]] = {}

    def __len__(self) -> int:
        return len(self._slots)

    def bit(self, worker_id: str) -> int:
        """The worker's own mask, 0 when it has no slot."""
        return 0 if (slot := self._slots.get(worker_id)) is None else 1 << slot

    def enrol(self, worker_id: str) -> int:
        """The worker's own mask; it is given a slot if it has none."""
        if (slot := self._slots.get(worker_id)) is None:
            if None not in self._ids:
                self._ids.append(None)
            slot = self._slots[worker_id] = self._ids.index(None)
            self._ids[slot] = worker_id
        return 1 << slot

    def leave(self, worker_id: str) -> None:
        if (slot := self._slots.pop(worker_id, None)) is not None:
            self._ids[slot] = None
            self._named.clear()

    def named(self, mask: int) -> tuple[str, ...]:
        """The workers of a mask; kept, for a fleet has few different ones."""
        names = self._named.get(mask)
        if names is None:
            if len(self._named) >= _MASKS_KEPT:
                self._named.clear()
            names = self._named[mask] = tuple(self._ids[slot] or "" for slot in _bits(mask))
        return names


def _bits(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
