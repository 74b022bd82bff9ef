"""A synthetic fleet: who holds which sessions, and the events by which it says so."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cacheplane.identity import BLOCK_TOKENS, HASH_BYTES, keys_of
from cacheplane.wire import Batch, BlockRemoved, BlockStored, Tier

PER_EVENT: Final = 100
SESSION_BLOCKS: Final = 2_000
TEMPLATE_BLOCKS: Final = 64  # a system prompt and tools of 1,024 tokens
TEMPLATES: Final = 8
Told = tuple[int, BlockStored | BlockRemoved]  # by a worker

MOVED, OFFLOADED = 0.2, 0.25  # shares of sessions that a second worker has too, and that have a copy on host


@dataclass(frozen=True)
class Session:
    """One prompt of 2,000 blocks, and where it lies; the first 64 blocks are those of a template.

    holders   (worker, tier), in the order in which it came there
    """

    hashes: list[bytes]
    holders: list[tuple[int, Tier]]

    @cached_property
    def keys(self) -> NDArray[np.uint64]:
        return keys_of(self.hashes)

    def stored(self) -> Iterator[Told]:
        """Events of 100 blocks each."""
        for worker, tier in self.holders:
            for first in range(0, len(self.hashes), PER_EVENT):
                parent = self.hashes[first - 1] if first else None
                yield worker, BlockStored(self.hashes[first : first + PER_EVENT], parent, BLOCK_TOKENS, tier)

    def removed(self) -> Iterator[Told]:
        """As stored, from its end; the template stays."""
        for worker, tier in self.holders:
            for end in range(len(self.hashes), TEMPLATE_BLOCKS, -PER_EVENT):
                yield worker, BlockRemoved(self.hashes[max(TEMPLATE_BLOCKS, end - PER_EVENT) : end], tier, "evicted")


class SyntheticFleet:
    """Sessions over `workers`; the same for every index that is measured."""

    def __init__(self, workers: int, blocks: int, seed: int = 1) -> None:
        self.workers = workers
        self._random = random.Random(seed)
        self._templates = [_names(self._random, TEMPLATE_BLOCKS) for _ in range(TEMPLATES)]
        count = max(1, blocks // (SESSION_BLOCKS - TEMPLATE_BLOCKS))
        self.sessions = [self.session(number) for number in range(count)]

    @property
    def blocks(self) -> int:
        """Different ones."""
        return TEMPLATES * TEMPLATE_BLOCKS + len(self.sessions) * (SESSION_BLOCKS - TEMPLATE_BLOCKS)

    def session(self, number: int) -> Session:
        """A new one; workers take turns."""
        home = number % self.workers
        holders = [(home, Tier.DEVICE)]
        if self._random.random() < MOVED:
            holders.append(((home + 1 + self._random.randrange(self.workers - 1)) % self.workers, Tier.DEVICE))
        if self._random.random() < OFFLOADED:
            holders.append((home, Tier.HOST))
        template = self._templates[number % TEMPLATES]
        return Session([*template, *_names(self._random, SESSION_BLOCKS - TEMPLATE_BLOCKS)], holders)

    def name(self, worker: int) -> str:
        return f"w{worker:03d}"


def batch(event: BlockStored | BlockRemoved) -> Batch:
    return Batch(0.0, [event], None, 1)


def _names(random: random.Random, count: int) -> list[bytes]:
    raw = random.randbytes(count * HASH_BYTES)
    return [raw[first : first + HASH_BYTES] for first in range(0, len(raw), HASH_BYTES)]
