"""Draft tokens for one sequence, and whether they are worth the time that they take.

A draft is looked up in the sequence itself (worker/ngrams.py) or guessed by a smaller model (worker/draft_model.py),
and computed in the same step as the token before it. It is accepted where it is what the sampler draws at that position
anyhow, so the reply is the one that it would have been.
"""

from array import array
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from worker.ngrams import NgramIndex

_KEEP = 0.8  # of what is known of a reply's drafts, when one more has been verified
_POOL_KEEP = 0.99  # of what is known of all drafts of the worker, in both cases
_FADE = 0.98  # of what is known of a reply's, when one was not worth it: it is tried again after some dozens of tokens
_PRIOR = 0.5  # chance of a token that was looked up, before anything is known
# Of a guess of a model, high enough that a good one is tried: of small siblings of large models 0.5 to 0.9 is reported.
# source   Leviathan et al., "Fast Inference from Transformers via Speculative Decoding", 2023
_MODEL_PRIOR = 0.8
_MODEL = -1  # the place of a model's chance among those of look-ups by rank
SOURCES = ("ngram", "model")


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

    def length(self, chances: Iterable[float]) -> int:
        """How many draft tokens pay, each accepted with its chance if those before it were; 0 when none do."""
        gain, since, reached, length = 0.0, 0.0, 1.0, 0
        for count, chance in enumerate(chances, 1):
            reached *= chance
            since += reached - self.token
            if since > 0:
                gain, since, length = gain + since, 0.0, count
        return length if gain > self.row else 0

    def saved(self, chance: float, length: int) -> float:
        """The part of a reply's time that drafts of this length save."""
        gain = sum(chance**rank for rank in range(1, length + 1))
        return (gain - self.row - length * self.token) / (1 + gain)


@dataclass(slots=True)
class Pool:
    """What the drafts of a worker's sequences were worth: by the rank of what was found, a model's last."""

    index: Callable[[], NgramIndex] = NgramIndex
    chances: list[Chance] = field(default_factory=list)

    def chance(self, rank: int) -> float:
        return self.chances[rank].value(_MODEL_PRIOR if rank == _MODEL else _PRIOR)


class Drafter:
    """Draft tokens for one sequence, as many as its earlier ones promise to be worth."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._index = pool.index()
        if not pool.chances:
            pool.chances = [Chance() for _ in range(self._index.ranks + 1)]
        self._chances = [Chance() for _ in pool.chances]
        self._ranks: list[int] = []

    @property
    def source(self) -> str:
        """Where the last proposal came from, one of SOURCES."""
        return SOURCES[self._ranks[0] == _MODEL]

    @property
    def trust(self) -> float:
        """The chance of a model's guess."""
        return self._chance(_MODEL)

    def propose(self, tokens: "array[int]", most: int, price: Price) -> list[int]:
        """What was seen to come after these tokens; often nothing."""
        found, ranks = self._index.find(tokens, most)
        if not found:
            return []
        length = price.length(map(self._chance, ranks))
        if not length:
            self._fade(ranks[0])
        self._ranks = ranks[:length] or ranks[:1]
        return found[:length]

    def distrust(self) -> None:
        """A model's guesses were not worth it."""
        self._fade(_MODEL)

    def guessed(self) -> None:
        """The proposal is a model's."""
        self._ranks = [_MODEL]

    def verified(self, accepted: int, *, rejected: bool) -> None:
        """Of the last proposal so many were accepted, and one was rejected or none; what a grammar forces behind it
        counts as its last token does."""
        last = len(self._ranks) - 1
        hits = Counter(self._ranks[min(at, last)] for at in range(accepted))
        failed = self._ranks[min(accepted, last)] if rejected else None
        for rank in {*hits, *([] if failed is None else [failed])}:
            self._chances[rank].verified(hits[rank], rejected=rank == failed)
            self._pool.chances[rank].verified(hits[rank], rejected=rank == failed, keep=_POOL_KEEP)

    def _chance(self, rank: int) -> float:
        return self._chances[rank].value(self._pool.chance(rank))

    def _fade(self, rank: int) -> None:
        self._chances[rank].fade(_FADE)
        self._pool.chances[rank].fade(_POOL_KEEP)
