"""A radix tree of block chains: which of them, by owner, share how much with a prompt."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Edge:
    """A run of blocks, how many chains of each owner go through all of it, and what follows."""

    hashes: Sequence[bytes]
    owners: Counter[str]
    children: dict[bytes, "_Edge"] = field(default_factory=dict)

    def split(self, depth: int) -> None:
        """Make it end after `depth` blocks; the rest follows it."""
        rest = _Edge(self.hashes[depth:], self.owners.copy(), self.children)
        self.hashes, self.children = self.hashes[:depth], {rest.hashes[0]: rest}


class PrefixTree:
    """Chains that were added and not removed; a look-up costs little however many share a prefix."""

    def __init__(self) -> None:
        self._root = _Edge((), Counter())

    def add(self, owner: str, hashes: Sequence[bytes]) -> None:
        edge, at = self._root, 0
        while at < len(hashes):
            if (child := edge.children.get(hashes[at])) is None:
                edge.children[hashes[at]] = _Edge(hashes[at:], Counter({owner: 1}))
                return
            if (shared := _shared(child.hashes, hashes, at)) < len(child.hashes):
                child.split(shared)
            child.owners[owner] += 1
            edge, at = child, at + shared

    def remove(self, owner: str, hashes: Sequence[bytes]) -> None:
        """Takes back one `add` of the same chain and owner, which must have been made."""
        edge, at = self._root, 0
        while at < len(hashes):
            child = edge.children[hashes[at]]
            child.owners[owner] -= 1
            if not child.owners[owner]:
                del child.owners[owner]
            if not child.owners:
                del edge.children[hashes[at]]
            edge, at = child, at + len(child.hashes)

    def match(self, hashes: Sequence[bytes]) -> dict[str, int]:
        """By owner, the blocks from block 0 on that the best of its chains shares."""
        overlap: dict[str, int] = {}
        edge, at = self._root, 0
        while at < len(hashes) and (child := edge.children.get(hashes[at])) is not None:
            shared = _shared(child.hashes, hashes, at)
            at += shared
            overlap |= dict.fromkeys(child.owners, at)
            if shared < len(child.hashes):
                break
            edge = child
        return overlap


def _shared(run: Sequence[bytes], hashes: Sequence[bytes], start: int) -> int:
    """Leading blocks of `run` that follow in `hashes` from `start` on.

    A hash commits to all before it, so the border can be bisected.
    """
    length = min(len(run), len(hashes) - start)
    return bisect_left(range(length), True, key=lambda block: run[block] != hashes[start + block])
