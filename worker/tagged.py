"""What is kept of tags' things, bounded in bytes, so that no tag's many crowd out another's few."""

from collections import OrderedDict
from typing import Generic, TypeVar

V = TypeVar("V")


class TaggedCache(Generic[V]):
    """Values by tag and key. When they are too many, the tag that has most gives up the one that it used longest ago.

    max_bytes   that the costs of all values may add up to
    """

    def __init__(self, max_bytes: int) -> None:
        self.bytes = 0
        self._max_bytes = max_bytes
        self._tags: dict[str, OrderedDict[str, tuple[V, int]]] = {}
        self._held: dict[str, int] = {}

    def get(self, tag: str, key: str) -> V | None:
        """A value, which is its tag's latest from now on."""
        own = self._tags.get(tag)
        if own is None or key not in own:
            return None
        own.move_to_end(key)
        return own[key][0]

    def put(self, tag: str, key: str, value: V, cost: int) -> None:
        """Keeps a value that takes `cost` bytes, unless that is more than there is room for in all."""
        if cost > self._max_bytes:
            return
        self._drop(tag, key)
        self._tags.setdefault(tag, OrderedDict())[key] = (value, cost)
        self._held[tag] = self._held.get(tag, 0) + cost
        self.bytes += cost
        while self.bytes > self._max_bytes:
            richest = max(self._held, key=lambda one: self._held[one])
            self._drop(richest, next(iter(self._tags[richest])))

    def _drop(self, tag: str, key: str) -> None:
        own = self._tags.get(tag)
        if own is None or key not in own:
            return
        _, cost = own.pop(key)
        self.bytes -= cost
        self._held[tag] -= cost
        if not own:
            del self._tags[tag], self._held[tag]
