"""What workers without events are thought to hold: the prompts that they computed for us, as long as they fit."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from cacheplane.identity import BlockChain
from cacheplane.index import Overlap, PrefixIndex
from cacheplane.wire import Batch, BlockRemoved, BlockStored, Event

LIFE_SECONDS: Final = 600.0
# Of an engine that does not say how large its pool is; half a million tokens in blocks of 16.
DEFAULT_BLOCKS: Final = 32_768


class _Pool:
    """One worker's modelled device pool: least recently used goes first, and nothing outlives `life`."""

    def __init__(self, life: float) -> None:
        self._life = life
        self._used: OrderedDict[bytes, float] = OrderedDict()

    def use(self, hashes: Sequence[bytes], now: float) -> list[bytes]:
        """The chain was computed just now; its deepest block goes first when room is needed. What is new: its end."""
        known = next((at for at, key in enumerate(hashes) if key not in self._used), len(hashes))
        for key in reversed(hashes):
            self._used[key] = now
            self._used.move_to_end(key)
        return list(hashes[known:])

    def shrink(self, capacity: float, now: float) -> list[bytes]:
        """Blocks that are over the capacity or the life, which it holds no more."""
        gone = []
        while self._used:
            key, used = next(iter(self._used.items()))
            if len(self._used) <= capacity and now - used < self._life:
                break
            del self._used[key]
            gone.append(key)
        return gone


class Guesses:
    """Our own decisions as a stand-in for events (mode `approximate`), in an index of their own.

    Never mixed with confirmed blocks. A prompt counts from its first token on; before that it is a sibling's matter.
    Bound: the worker's own number of blocks, or DEFAULT_BLOCKS, and LIFE_SECONDS.
    """

    def __init__(self, life: float = LIFE_SECONDS) -> None:
        self._life = life
        self._index = PrefixIndex()
        self._pools: dict[str, _Pool] = {}

    def __contains__(self, worker_id: str) -> bool:
        return worker_id in self._pools

    def computed(self, worker_id: str, chain: BlockChain, capacity: int, now: float) -> None:
        """A worker without events has computed a prompt of ours.

        capacity   blocks of its pool, 0 for unknown
        """
        pool = self._pools.setdefault(worker_id, _Pool(self._life))
        fresh = pool.use(chain.hashes, now)
        parent = chain.hashes[-len(fresh) - 1] if len(fresh) < len(chain) else None
        events: list[Event] = [BlockStored(fresh, parent, chain.block_size)] if fresh else []
        if gone := pool.shrink(capacity or DEFAULT_BLOCKS, now):
            events.append(BlockRemoved(gone))
        self._index.apply(worker_id, Batch(now, events))

    def match(self, chain: BlockChain, now: float) -> dict[str, Overlap]:
        """By worker, what it is thought to hold of a prompt."""
        if not self._pools:
            return {}
        for worker_id, pool in self._pools.items():
            if gone := pool.shrink(float("inf"), now):
                self._index.apply(worker_id, Batch(now, [BlockRemoved(gone)]))
        return self._index.match(chain.keys)

    def drop(self, worker_id: str) -> None:
        """The worker is gone, or its events tell better."""
        if self._pools.pop(worker_id, None) is not None:
            self._index.drop(worker_id)
