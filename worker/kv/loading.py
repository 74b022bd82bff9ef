"""Bringing blocks back from host and disk, beside the engine's own work."""

import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol

from cacheplane.wire import Tier
from worker.kv.copying import Copier, Inlet
from worker.kv.rate import CopyRate
from worker.kv.shape import Block

_AHEAD_BYTES: Final = 16 << 20  # enough to keep the disk's readers busy while a block is copied
# Seconds that a load waits for one block, of a few megabytes. A disk that hangs would else keep the slot, past the
# deadline of its request, and with one slot after another the whole worker.
_PATIENCE: Final = 5.0


class Promise(Protocol):
    """A block that was asked for, and the memory that it comes in."""

    def result(self, timeout: float | None = None) -> Block | None:
        """Waits for it; None if it is a miss. TimeoutError when it is not there in so many seconds."""

    def cancel(self) -> bool:
        """It need not come; False when it is coming already."""


@dataclass(frozen=True, slots=True)
class Here:
    """A promise of what is there."""

    block: Block

    def result(self, timeout: float | None = None) -> Block:  # noqa: ARG002
        return self.block

    def cancel(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class Part:
    """One block to bring in: where its KV goes, and how to ask for it."""

    into: Block
    tier: Tier
    ask: Callable[[], Promise]


class Loader:
    """One thread that copies.

    What it writes to belongs to a sequence that the engine does not compute until its load is done, and the copy
    releases the interpreter, so the engine goes on with the others meanwhile.

    It asks for blocks a little ahead of its copying. Each comes in memory of its own, which nobody else has until the
    copy is made: so a load takes as much memory as its window, however long the prefix, and all loads no more.

    rates         measured, by tier, from the tier to the sequence
    block_bytes   of the KV of one block
    window        the most blocks that are asked for and not yet copied
    patience      seconds that it waits for one block
    """

    def __init__(
        self, copier: Copier, block_bytes: int, *, ahead_bytes: int = _AHEAD_BYTES, patience: float = _PATIENCE
    ) -> None:
        self.rates = {tier: CopyRate() for tier in (Tier.HOST, Tier.DISK)}
        self.window = max(2, ahead_bytes // block_bytes)
        self._copier = copier
        self._block_bytes = block_bytes
        self._patience = patience
        self._thread = ThreadPoolExecutor(1, "kv-load")

    def start(self, parts: list[Part], wanted: Callable[[], bool]) -> "Future[int]":
        """Promises how many of the parts, from the first on, have come.

        It stops at one that is a miss, or takes too long, or when they are wanted no longer. Then nothing is on its way
        any more, but for what a tier that hangs may still read into memory that is nobody's.
        """
        return self._thread.submit(self._load, parts, wanted, self._copier.inlet())

    def close(self) -> None:
        self._thread.shutdown()

    def _load(self, parts: list[Part], wanted: Callable[[], bool], inlet: Inlet) -> int:
        ahead: deque[Promise] = deque()
        try:
            for count, part in enumerate(parts):
                if not wanted():
                    return count
                began = time.perf_counter()
                ahead.extend(one.ask() for one in parts[count + len(ahead) : count + self.window])
                try:
                    found = self._next(ahead)
                except TimeoutError:  # this slow it is measured to be, and left alone for a while
                    self.rates[part.tier].observe(self._block_bytes, time.perf_counter() - began)
                    return count
                if found is None:
                    return count
                inlet(part.into, found)
                del found  # and with it the memory that it came in, before the next is asked for
                self.rates[part.tier].observe(self._block_bytes, time.perf_counter() - began)
            return len(parts)
        finally:
            self._give_up(ahead)

    def _next(self, ahead: deque[Promise]) -> Block | None:
        """What was asked for first; None if it is a miss, TimeoutError when it takes too long."""
        promise = ahead.popleft()
        try:
            return promise.result(self._patience)
        except TimeoutError:
            promise.cancel()
            raise

    def _give_up(self, promises: deque[Promise]) -> None:
        """Returns when none of them is coming any more, or is to be waited for."""
        for promise in [promise for promise in promises if not promise.cancel()]:
            with suppress(TimeoutError):
                promise.result(self._patience)
