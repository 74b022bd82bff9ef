"""Bounds on what is remembered: by number, and in bytes for what is costly to make and depends on what clients send."""

from collections import OrderedDict
from threading import Lock
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


def keep_newest(entries: OrderedDict[K, V], newest: K, most: int) -> None:
    """Makes an entry the newest, and lets go of the oldest when there are more than so many."""
    entries.move_to_end(newest)
    if len(entries) > most:
        entries.popitem(last=False)


class BoundedCache(Generic[V]):
    """Least recently used entries go first; the sum of their costs stays within `max_bytes`.

    Keys begin with a partition (a tenant), so that the time to answer tells nobody what others have sent. Safe to use
    from several threads.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.bytes = 0
        self._entries: OrderedDict[tuple[str, object], tuple[V, int]] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, partition: str, key: object) -> V | None:
        with self._lock:
            entry = self._entries.get((partition, key))
            if entry is None:
                return None
            self._entries.move_to_end((partition, key))
            return entry[0]

    def put(self, partition: str, key: object, value: V, cost: int) -> None:
        """Keep `value`, which takes about `cost` bytes; one that is over the whole bound is not kept at all."""
        if cost > self.max_bytes:
            return
        with self._lock:
            previous = self._entries.pop((partition, key), None)
            if previous is not None:
                self.bytes -= previous[1]
            self._entries[partition, key] = (value, cost)
            self.bytes += cost
            while self.bytes > self.max_bytes:
                _, (_, freed) = self._entries.popitem(last=False)
                self.bytes -= freed
