"""Reads that requests wait for: one at a time for each key, and none for longer than it is worth."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

PATIENCE_SECONDS = 5.0
BRIEF_SECONDS = 2.0  # where an answer from before will do


class Lookups(Generic[K, V]):
    """A database that refuses says so at once. One that stands still, or that the network hides, says nothing for as
    long as its connections live: then whoever asks is told as much within the patience, counted from when the read
    began, so that a read that hangs is waited for once and not by every request.
    """

    def __init__(self) -> None:
        self._reading: dict[K, tuple[asyncio.Task[V], float]] = {}

    async def __call__(self, key: K, query: Callable[[], Coroutine[Any, Any, V]], *, known: bool) -> V:
        """What `query` returns, or the read of this key that is under way: a burst makes one, and a caller who leaves
        does not fail the others.

        known    whether there is an answer from before
        raises   what `query` raises; TimeoutError
        """
        task, began = self._reading.get(key) or self._begin(key, query)
        until = began + (BRIEF_SECONDS if known else PATIENCE_SECONDS)
        async with asyncio.timeout_at(until):
            return await asyncio.shield(task)

    def _begin(self, key: K, query: Callable[[], Coroutine[Any, Any, V]]) -> tuple[asyncio.Task[V], float]:
        task = asyncio.create_task(query())
        self._reading[key] = task, asyncio.get_running_loop().time()
        task.add_done_callback(lambda done: self._ended(key, done))
        return self._reading[key]

    def _ended(self, key: K, task: asyncio.Task[V]) -> None:
        del self._reading[key]
        if not task.cancelled():
            task.exception()  # seen here, so that a read whose callers all left is not reported as an error
