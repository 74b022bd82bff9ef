"""Which slots are free: as many sequences run at once as there are slots."""


class FreeSlots:
    """The numbers 0 .. total - 1, each free or taken."""

    def __init__(self, total: int) -> None:
        self.total = total
        self._free = set(range(total))

    @property
    def free(self) -> int:
        """How many are free."""
        return len(self._free)

    def take(self) -> int | None:
        """The lowest free slot, so that running slots stay adjacent and decode attention covers few idle ones."""
        if not self._free:
            return None
        slot = min(self._free)
        self._free.remove(slot)
        return slot

    def give_back(self, slot: int) -> None:
        """RuntimeError unless the slot is taken."""
        if slot in self._free or not 0 <= slot < self.total:
            raise RuntimeError(f"slot {slot} was given back twice")
        self._free.add(slot)
