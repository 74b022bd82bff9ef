"""A copier for the CPU whose copies are as late as those of a stream may be."""

from collections import deque
from collections.abc import Callable
from threading import Lock

from worker.kv.copying import Inlet
from worker.kv.shape import Block
from worker.kv.store import copy_block


class LateCopy:
    """One of a late copier's; it looks unfinished once after it has been made."""

    def __init__(self, copier: "LateCopier", action: Callable[[], None]) -> None:
        self._copier = copier
        self.action: Callable[[], None] | None = action
        self._seen = False

    @property
    def done(self) -> bool:
        seen, self._seen = self._seen, self.action is None
        return seen

    def wait(self) -> None:
        self._copier.run_until(self)

    def order(self) -> None:
        self._copier.run_until(self)


class LateCopier:
    """Makes copies as late as a stream may: when something is said to come after them, or somebody waits."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._queue: deque[LateCopy] = deque()

    def start(self, copy: Callable[[], None]) -> LateCopy:
        self._queue.append(late := LateCopy(self, copy))
        return late

    def inlet(self) -> Inlet:
        def bring(into: Block, source: Block) -> None:
            self.run_until(None)
            copy_block(into, source)

        return bring

    def run_until(self, last: LateCopy | None) -> None:
        """In order; None for all."""
        with self._lock:
            while self._queue and (last is None or last.action is not None):
                copy = self._queue.popleft()
                assert copy.action is not None
                copy.action()
                copy.action = None
