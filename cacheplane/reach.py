"""What is known of a prompt on each worker, as far as anything is."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from cacheplane.fleet import Line
from cacheplane.gauges import Floats
from cacheplane.guesses import Guesses
from cacheplane.identity import BlockChain
from cacheplane.index import Overlap, PrefixIndex
from cacheplane.siblings import Siblings


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt as placement sees it; `reusable` is the most tokens that any worker serves from cache.

    Even a full hit computes one token, so the worker reuses at most the blocks before the last token.
    """

    chain: BlockChain
    tokens: int

    @property
    def reusable(self) -> int:
        return max(0, self.tokens - 1) // self.chain.block_size * self.chain.block_size


@dataclass(frozen=True, slots=True)
class Reach:
    """Tokens of one prompt by worker, each float64[workers of the line], none above what can be reused.

    device, host, disk   what the worker is thought to hold, by where it loads it from; their sum is the prediction
    sent                 what it was just sent by ourselves, from the first token on
    """

    device: Floats
    host: Floats
    disk: Floats
    sent: Floats

    @property
    def predicted(self) -> Floats:
        return self.device + self.host + self.disk

    def without(self, places: list[int]) -> "Reach":
        """The same with nothing known of some workers."""
        arrays = [array.copy() for array in (self.device, self.host, self.disk, self.sent)]
        for array in arrays:
            array[places] = 0
        return Reach(*arrays)

    def nothing(self) -> "Reach":
        zeros = np.zeros_like(self.sent)
        return Reach(zeros, zeros, zeros, zeros)


def reach(prompt: Prompt, line: Line, index: PrefixIndex, guesses: Guesses, siblings: Siblings, now: float) -> Reach:
    """Confirmed blocks where events tell, our own past decisions where there are none."""
    overlaps = index.match(prompt.chain.keys)
    for worker_id, guess in guesses.match(prompt.chain, now).items():
        if not index.synced(worker_id) and guess.blocks > overlaps.get(worker_id, Overlap()).blocks:
            overlaps[worker_id] = guess
    device, host, disk = np.minimum(_ends(overlaps, line) * prompt.chain.block_size, prompt.reusable)
    sent = np.zeros(len(line.workers))
    for worker_id, blocks in siblings.match(prompt.chain.hashes, now).items():
        if (place := line.places.get(worker_id)) is not None:
            sent[place] = min(blocks * prompt.chain.block_size, prompt.reusable)
    return Reach(device, host - device, disk - host, sent)


def _ends(overlaps: Mapping[str, Overlap], line: Line) -> Floats:
    """float64[3, workers]: the block at which the run on device ends, that on host, that on disk."""
    ends = np.zeros((3, len(line.workers)))
    places, counts = [], []
    for worker_id, overlap in overlaps.items():
        if (place := line.places.get(worker_id)) is not None:
            places.append(place)
            counts.append((overlap.device, overlap.host, overlap.disk))
    if places:
        ends[:, places] = np.cumsum(counts, axis=1).T
    return ends
