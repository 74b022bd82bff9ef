"""Bringing blocks back from host and disk, beside the engine's own work."""

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from cacheplane.wire import Tier
from worker.kv.copying import Copier, Inlet
from worker.kv.rate import CopyRate
from worker.kv.shape import Block

Fetch = Callable[[], Block | None]


@dataclass(frozen=True, slots=True)
class Part:
    """One block to bring in: where its KV goes, and where it comes from."""

    into: Block
    tier: Tier
    fetch: Fetch


class Loader:
    """One thread that copies.

    What it writes to belongs to a sequence that the engine does not compute until its load is done, and the copy
    releases the interpreter, so the engine goes on with the others meanwhile.

    rates         measured, by tier, from the tier to the sequence
    block_bytes   of the KV of one block
    """

    def __init__(self, copier: Copier, block_bytes: int) -> None:
        self.rates = {tier: CopyRate() for tier in (Tier.HOST, Tier.DISK)}
        self._copier = copier
        self._block_bytes = block_bytes
        self._thread = ThreadPoolExecutor(1, "kv-load")

    def start(self, parts: list[Part]) -> "Future[int]":
        """Promises how many of the parts, from the first on, have come: it stops at one that is a miss."""
        return self._thread.submit(self._load, parts, self._copier.inlet())

    def close(self) -> None:
        self._thread.shutdown()

    def _load(self, parts: list[Part], inlet: Inlet) -> int:
        for count, part in enumerate(parts):
            began = time.perf_counter()
            found = part.fetch()
            if found is None:
                return count
            inlet(part.into, found)
            self.rates[part.tier].observe(self._block_bytes, time.perf_counter() - began)
        return len(parts)
