"""Draft tokens for one sequence, and whether they are worth the time that they take.

A draft is looked up in the sequence itself (worker/ngrams.py) and computed in the same step as the token before it. It
is accepted where it is what the sampler draws at that position anyhow, so the reply is the one that it would have been.
"""

from array import array
from collections.abc import Callable
from dataclasses import dataclass, field

from worker.ngrams import NgramIndex

_KEEP = 0.8  # of what is known of a reply's drafts, when one more has been verified
_POOL_KEEP = 0.99  # of what is known of all drafts of the worker, in both cases
_FADE = 0.98  # of what is known of a reply's, when one was not worth it: it is tried again after some dozens of tokens
_PRIOR = 0.5  # chance of a draft token before anything is known


@dataclass(slots=True)
class Chance:
    """Of a draft token to be accepted if those before it were: hits of tries, the older the less they weigh."""

    hits: float = 0.0
    tries: float = 0.0

    def value(self, prior: float) -> float:
        """What is believed, with a prior that weighs as much as one try."""
        return (self.hits + prior) / (self.tries + 1.0)

    def verified(self, accepted: int, *, rejected: bool, keep: float = _KEEP) -> None:
        self.fade(keep)
        self.hits += accepted
        self.tries += accepted + rejected

    def fade(self, keep: float) -> None:
        self.hits *= keep
        self.tries *= keep


@dataclass(frozen=True, slots=True)
class Price:
    """What drafts cost, in tokens: as many as the step would yield in the same time without any draft.

    row      once for a row that has drafts, since its attention is computed by itself
    token    for each draft token
    """

    row: float = 0.0
    token: float = 0.0

    def length(self, chance: float, most: int) -> int:
        """How many draft tokens pay, each accepted with this chance if those before it were; 0 when none do."""
        gain, length, reached = 0.0, 0, chance
        while length < most and reached > self.token:
            gain += reached
            length += 1
            reached *= chance
        return length if gain > self.row + length * self.token else 0


@dataclass(slots=True)
class Pool:
    """What the drafts of all sequences of a worker were worth, by the length of the run that was found."""

    index: Callable[[], NgramIndex] = NgramIndex
    chances: list[Chance] = field(default_factory=list)

    def chance(self, rank: int) -> float:
        return self.chances[rank].value(_PRIOR)


class Drafter:
    """Draft tokens for one sequence, as many as its earlier ones promise to be worth."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._index = pool.index()
        if not pool.chances:
            pool.chances = [Chance() for _ in self._index.lengths]
        self._chances = [Chance() for _ in self._index.lengths]
        self._rank = 0

    def propose(self, tokens: "array[int]", most: int, price: Price) -> list[int]:
        """What may come after these tokens; often nothing."""
        found, rank = self._index.find(tokens, most)
        if not found:
            return []
        chance = self._chances[rank].value(self._pool.chance(rank))
        length = price.length(chance, len(found))
        if not length:
            self._chances[rank].fade(_FADE)
            self._pool.chances[rank].fade(_POOL_KEEP)
        self._rank = rank
        return found[:length]

    def verified(self, accepted: int, *, rejected: bool) -> None:
        """Of the last proposal so many were accepted, and one was rejected or none."""
        self._chances[self._rank].verified(accepted, rejected=rejected)
        self._pool.chances[self._rank].verified(accepted, rejected=rejected, keep=_POOL_KEEP)
