"""Chooses the next token of one sequence from its logits."""

import math
from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from worker.allowed import Allowed
from worker.race import race
from worker.wire import Sampling, TokenLogprob

Logits = NDArray[np.float32]
_FIRST_CANDIDATES = 64
_LEAST_TEMPERATURE = 1e-20  # so that it is a number in single precision
_FAR = np.float32(1e-3)  # of the best token's weight
_THRESHOLDS = (1e-2, 1e-4, 1e-8, float(np.finfo(np.float32).tiny))  # weights, of a best token with 1


@dataclass(frozen=True, slots=True)
class Choice:
    """A chosen token, and its log probability if that was asked for."""

    token: int
    logprob: TokenLogprob | None


class LogitsError(Exception):
    """Among the logits is what is no number, or endless: nothing can be chosen by them."""


class Sampler:
    """Sampling parameters of one sequence, with what it has generated so far.

    Randomness depends on the seed, the choice index and the position alone, so a request with a seed gives the same
    tokens whatever else is in the batch.
    """

    def __init__(self, params: Sampling, seed: int, index: int, prompt: Iterable[int]) -> None:
        self.params = params
        self._key = np.array([seed & 0xFFFFFFFFFFFFFFFF, index], dtype=np.uint64)
        self._generated: Counter[int] = Counter()
        self._prompt = set(prompt) if params.repetition_penalty != 1.0 else set()
        self._seen = array("q", self._prompt)  # each once, and what is generated behind
        self._biased = np.array([int(token) for token in params.logit_bias], np.int64)
        self._bias = np.array([*params.logit_bias.values()], np.float32)
        self._changes_logits = bool(
            params.logit_bias or params.frequency_penalty or params.presence_penalty or params.repetition_penalty != 1.0
        )

    def accept(self, token: int) -> None:
        """The sequence went on with this token, chosen or forced."""
        if self._changes_logits:
            if token not in self._generated and token not in self._prompt:
                self._seen.append(token)
            self._generated[token] += 1

    def choose(self, logits: Logits, position: int, allowed: Allowed | None) -> Choice | None:
        """The next token; None when nothing is allowed. LogitsError as in `pick`."""
        token = self.pick(logits, position, allowed)
        return None if token is None else Choice(token, self._logprob(logits, token))

    def pick(self, logits: Logits, position: int, allowed: Allowed | None) -> int | None:
        """The next token alone; None when nothing is allowed.

        logits    [vocabulary]; not changed. LogitsError when they are no numbers
        position  tokens generated before this one
        allowed   None when all tokens are

        What would be chosen if all were is tried first, and mostly it is allowed: then nobody needs to know which
        others are. A draw that is thrown away leaves the distribution exact, since the next has randomness of its own;
        where top-k, top-p or min-p count what is allowed there is no such trial.
        """
        scores = self._penalised(logits) if self._changes_logits else logits
        if allowed is None:
            return self._one_of(scores, position, 0)
        if not self._filters:
            token = self._one_of(scores, position, 0)
            if token is not None and allowed.permits(token):
                return token
        return self._one_of(np.where(allowed.mask(), scores, -np.inf), position, 1)

    @property
    def _filters(self) -> bool:
        """Whether the set of candidates says who may be drawn."""
        params = self.params
        return params.temperature > 0 and not (params.top_k == 0 and params.top_p == 1.0 and params.min_p == 0.0)

    def _one_of(self, scores: Logits, position: int, draw: int) -> int | None:
        best = int(scores.argmax())  # what is no number is taken for the largest
        if not scores[best] < np.inf:
            raise LogitsError
        if scores[best] == -np.inf:
            return None
        return best if self.params.temperature == 0 else self._draw(scores, position, draw)

    def _penalised(self, logits: Logits) -> Logits:
        """source   frequency and presence: OpenAI's API reference; repetition: CTRL, Keskar et al., 2019"""
        scores = logits.copy()
        if self.params.repetition_penalty != 1.0:
            seen = np.array(self._seen)
            values = scores[seen]
            penalty = self.params.repetition_penalty
            scores[seen] = np.where(values > 0, values / penalty, values * penalty)
        count = len(self._generated)
        generated = np.fromiter(self._generated.keys(), np.int64, count)
        times = np.fromiter(self._generated.values(), np.float32, count)
        scores[generated] -= times * self.params.frequency_penalty + self.params.presence_penalty
        scores[self._biased] += self._bias
        return scores

    def _draw(self, scores: Logits, position: int, draw: int) -> int:
        """One of the tokens that top-k, top-p and min-p leave, by their weights; `draw` counts those of a position."""
        with np.errstate(over="ignore"):  # a temperature next to 0 sends all others to -inf, as it should
            weights = np.exp((scores - scores.max()) / np.float32(max(self.params.temperature, _LEAST_TEMPERATURE)))
        key = int(np.random.Philox(key=self._key, counter=position).random_raw(draw + 1)[draw])
        if not self._filters:
            return _any(weights, key)
        tokens = self._candidates(weights)
        return int(tokens[race(weights[tokens], tokens, key)])

    def _candidates(self, weights: Logits) -> NDArray[np.int64]:
        """Token ids that may be drawn, in any order; weights are 1 for the best.

        Of top-k's tokens top-p leaves those that have its share of their sum, not of all tokens' (as transformers, vLLM
        and llama.cpp have it); min-p asks for a share of the best one's weight, so that its turn doesn't matter.
        """
        params = self.params
        tokens = _largest(weights, params.top_k) if params.top_k else np.flatnonzero(weights)
        if params.top_p < 1.0:
            tokens = tokens[_nucleus(weights[tokens], params.top_p)]
        return tokens[weights[tokens] >= params.min_p]

    def _logprob(self, logits: Logits, token: int) -> TokenLogprob | None:
        count = self.params.logprobs
        if count is None:
            return None
        best = float(logits.max())
        total = best + math.log(np.exp(logits - np.float32(best)).sum(dtype=np.float64))
        top = _likeliest(logits, count, np.inf)
        return TokenLogprob(
            token, float(logits[token]) - total, [(int(one), float(logits[one]) - total) for one in top]
        )


def _any(weights: Logits, key: int) -> int:
    """A token by weight. The many that are far below the best race as one, and among each other only if that one wins:
    the first of many has arrived at a time that is distributed as if it had the sum of their weights."""
    near = weights >= _FAR
    tokens = np.flatnonzero(near)
    if 4 * len(tokens) > len(weights):
        return race(weights, np.arange(len(weights)), key)
    far = weights.sum(where=~near, dtype=np.float64)  # by itself: what may not come has no weight at all
    runners = np.append(tokens, len(weights))
    first = race(np.append(weights[tokens].astype(np.float64), far), runners, key)
    if first < len(tokens):
        return int(tokens[first])
    others = np.flatnonzero(~near)
    return int(others[race(weights[others], others, key)])


def _largest(weights: Logits, count: int) -> NDArray[np.int64]:
    """Indices of the so many largest weights that are not nothing, in any order; the best has 1.

    Most of a vocabulary is far below the best token: it is sifted by ever lower thresholds until enough is above.
    """
    for threshold in _THRESHOLDS:
        kept = np.flatnonzero(weights >= threshold)
        if len(kept) >= count:
            break
    surplus = len(kept) - count
    return kept if surplus <= 0 else kept[np.argpartition(weights[kept], surplus)[surplus:]]


def _nucleus(weights: Logits, share: float) -> NDArray[np.int64]:
    """Indices of the largest weights that have this share of all together, sifted likewise."""
    mass = share * float(weights.sum(dtype=np.float64))
    for threshold in _THRESHOLDS:
        kept = np.flatnonzero(weights >= threshold)
        if weights[kept].sum(dtype=np.float64) >= mass:
            break
    return kept[_likeliest(weights[kept], len(kept), mass)]


def _likeliest(values: NDArray[np.floating], count: int, mass: float) -> NDArray[np.int64]:
    """Indices of the largest values, largest first: at most `count`, and only as many as reach `mass` in sum.

    Grows the set of candidates instead of sorting the vocabulary, which takes 3.5 ms a row.
    """
    count = min(count, len(values))
    size = min(count, _FIRST_CANDIDATES)
    while True:
        part = np.argpartition(values, len(values) - size)[len(values) - size :] if size else np.empty(0, np.int64)
        ordered = part[np.lexsort((part, -values[part]))]
        reached = values[ordered].cumsum(dtype=np.float64) if mass < np.inf else np.zeros(0)
        if len(reached) and reached[-1] >= mass:
            return ordered[: int(reached.searchsorted(mass)) + 1]
        if size == count:
            return ordered
        size = min(count, size * 8)
