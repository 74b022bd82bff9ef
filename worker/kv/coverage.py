"""Which cover each leased block is under."""

import math
from collections.abc import Iterable
from typing import Generic

from worker.kv.cover import Block, Cover
from worker.kv.timers import Timers


class Coverage(Generic[Block]):
    """The blocks that the book of leases knows, and their covers.

    Covers are split when some of their blocks fare differently from the rest, and blocks come together again under the
    cover of a new lease and when they are moved one after another. Splitting copies the terms: blocks that are apart
    have been together before, when a term on all of them cost as much as on one, so that this is amortised.
    """

    def __init__(self, timers: Timers[Block]) -> None:
        self._covers: dict[Block, Cover[Block]] = {}
        self._timers = timers

    def __len__(self) -> int:
        """How many blocks there are."""
        return len(self._covers)

    def covers(self) -> dict[Cover[Block], list[Block]]:
        """All of them, for checks."""
        held: dict[Cover[Block], list[Block]] = {}
        for block, cover in self._covers.items():
            held.setdefault(cover, []).append(block)
        return held

    def of(self, block: Block) -> Cover[Block] | None:
        return self._covers.get(block)

    def blocks(self, cover: Cover[Block]) -> list[Block]:
        return [block for block in cover.listed if self._covers.get(block) is cover]

    def groups(self, blocks: Iterable[Block]) -> list[tuple[Cover[Block], list[Block]]]:
        """Those of these blocks that are known, each once, by cover."""
        groups: dict[Cover[Block], dict[Block, None]] = {}
        for block in blocks:
            cover = self._covers.get(block)
            if cover is not None:
                groups.setdefault(cover, {})[block] = None
        return [(cover, list(part)) for cover, part in groups.items()]

    def join(self, cover: Cover[Block], block: Block) -> None:
        """The block is under this cover from now on, which it never was before."""
        self.leave(block)
        self._covers[block] = cover
        cover.listed.append(block)
        cover.size += 1

    def leave(self, block: Block) -> None:
        """The block is under no cover from now on."""
        cover = self._covers.pop(block, None)
        if cover is None:
            return
        cover.size -= 1
        if not cover.size:
            cover.vanish()
        if len(cover.listed) > 2 * cover.size + 8:
            cover.listed = self.blocks(cover)

    def split(self, cover: Cover[Block], blocks: list[Block]) -> Cover[Block]:
        """The cover of just these of its blocks: itself, or a copy that rings when it does."""
        if len(blocks) == cover.size:
            return cover
        part = cover.copy()
        if part.due < math.inf:
            self._timers.set(part)
        for block in blocks:
            self.join(part, block)
        return part

    def move(self, block: Block, tier: int) -> Cover[Block]:
        """The block is held on another tier from now on; returns its cover."""
        cover = self._covers[block]
        beside = cover.beside
        if beside is not None and beside.size and beside.tier == tier and beside.alike(cover):
            self.join(beside, block)
            return beside
        part = self.split(cover, [block])
        part.tier, part.beside = tier, None
        if part is not cover:
            cover.beside = part
        return part
