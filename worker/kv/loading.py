"""Bringing blocks back from host and disk into a slot, beside the engine's own work."""

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from torch import Tensor

from cacheplane.wire import Tier
from worker.kv.rate import CopyRate
from worker.kv.slots import Slots

Fetch = Callable[[], tuple[Tensor, Tensor] | None]


@dataclass(frozen=True, slots=True)
class Part:
    """One block to bring in: its position in the slot, in tokens, and where its KV comes from."""

    position: int
    tier: Tier
    fetch: Fetch


class Loader:
    """One thread that copies into slots.

    The slot belongs to a sequence that the engine does not compute until its load is done, and the copy releases the
    interpreter, so the engine goes on with the others meanwhile.

    rates   measured, by tier, from the tier into the slot
    """

    def __init__(self, slots: Slots) -> None:
        self.rates = {tier: CopyRate() for tier in (Tier.HOST, Tier.DISK)}
        self._slots = slots
        self._block_bytes = slots.shape.bytes_per_token * slots.block_size
        self._thread = ThreadPoolExecutor(1, "kv-load")

    def start(self, slot: int, parts: list[Part]) -> "Future[int]":
        """Promises how many of the parts, from the first on, are in the slot: it stops at one that is a miss."""
        return self._thread.submit(self._load, slot, parts)

    def close(self) -> None:
        self._thread.shutdown()

    def _load(self, slot: int, parts: list[Part]) -> int:
        for count, part in enumerate(parts):
            began = time.perf_counter()
            found = part.fetch()
            if found is None:
                return count
            self._slots.put(slot, part.position, *found)
            self.rates[part.tier].observe(self._block_bytes, time.perf_counter() - began)
        return len(parts)
