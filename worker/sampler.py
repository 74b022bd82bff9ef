"""Chooses the next token of one sequence from its logits."""

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from worker.wire import Sampling, TokenLogprob

Logits = NDArray[np.float32]
_FIRST_CANDIDATES = 64


@dataclass(frozen=True, slots=True)
class Choice:
    """A chosen token, and its log probability if that was asked for."""

    token: int
    logprob: TokenLogprob | None


class Sampler:
    """Sampling parameters of one sequence, with what it has generated so far.

    Randomness depends on the seed, the choice index and the position alone, so a request with a seed gives the same
    tokens whatever else is in the batch.
    """

    def __init__(self, params: Sampling, seed: int, index: int, prompt: set[int]) -> None:
        self.params = params
        self._key = np.array([seed & 0xFFFFFFFFFFFFFFFF, index], dtype=np.uint64)
        self._generated: Counter[int] = Counter()
        self._prompt = prompt if params.repetition_penalty != 1.0 else set()
        self._bias = {int(token): value for token, value in params.logit_bias.items()}
        self._changes_logits = bool(
            self._bias or params.frequency_penalty or params.presence_penalty or params.repetition_penalty != 1.0
        )

    def accept(self, token: int) -> None:
        """The sequence went on with this token, chosen or forced."""
        if self._changes_logits:
            self._generated[token] += 1

    def choose(self, logits: Logits, position: int, allowed: NDArray[np.bool_] | None) -> Choice | None:
        """The next token; None when nothing is allowed.

        logits    [vocabulary]; not changed
        position  tokens generated before this one
        allowed   [vocabulary], or None when all are
        """
        scores = self._penalised(logits) if self._changes_logits else logits
        if allowed is not None:
            scores = np.where(allowed, scores, -np.inf)
        best = int(scores.argmax())
        if scores[best] == -np.inf:
            return None
        token = best if self.params.temperature == 0 else self._draw(scores, position)
        return Choice(token, self._logprob(logits, token))

    def _penalised(self, logits: Logits) -> Logits:
        """source   frequency and presence: OpenAI's API reference; repetition: CTRL, Keskar et al., 2019"""
        scores = logits.copy()
        if self.params.repetition_penalty != 1.0:
            seen = np.fromiter(self._prompt | self._generated.keys(), dtype=np.int64)
            values = scores[seen]
            penalty = self.params.repetition_penalty
            scores[seen] = np.where(values > 0, values / penalty, values * penalty)
        for token, count in self._generated.items():
            scores[token] -= count * self.params.frequency_penalty + self.params.presence_penalty
        for token, value in self._bias.items():
            scores[token] += value
        return scores

    def _draw(self, scores: Logits, position: int) -> int:
        """By inverse distribution function over the tokens that top-k, top-p and min-p leave."""
        below_best = scores.astype(np.float64) - scores.max()
        with np.errstate(over="ignore"):  # a temperature next to 0 sends all others to -inf, as it should
            weights = np.exp(below_best / self.params.temperature)
        tokens = self._candidates(weights / weights.sum())
        if tokens is not None:
            weights = weights[tokens]
        cumulative = weights.cumsum()
        uniform = np.random.Generator(np.random.Philox(key=self._key, counter=position)).random()
        drawn = min(int(cumulative.searchsorted(uniform * cumulative[-1], side="right")), len(cumulative) - 1)
        return drawn if tokens is None else int(tokens[drawn])

    def _candidates(self, chances: NDArray[np.float64]) -> NDArray[np.int64] | None:
        """Token ids that may be drawn, likeliest first; None for all of them."""
        params = self.params
        if params.top_k == 0 and params.top_p == 1.0 and params.min_p == 0.0:
            return None
        tokens = _likeliest(chances, params.top_k or len(chances), params.top_p)
        if params.min_p:
            tokens = tokens[chances[tokens] >= params.min_p * chances[tokens[0]]]
        return tokens

    def _logprob(self, logits: Logits, token: int) -> TokenLogprob | None:
        count = self.params.logprobs
        if count is None:
            return None
        wide = logits.astype(np.float64)
        logprobs = wide - wide.max()
        logprobs -= np.log(np.exp(logprobs).sum())
        top = _likeliest(logprobs, count, np.inf)
        return TokenLogprob(token, float(logprobs[token]), [(int(index), float(logprobs[index])) for index in top])


def _likeliest(values: NDArray[np.float64], count: int, mass: float) -> NDArray[np.int64]:
    """Indices of the largest values, largest first: at most `count`, and only as many as reach `mass` in sum.

    Grows the set of candidates instead of sorting the vocabulary, which takes 3.5 ms a row.
    """
    count = min(count, len(values))
    size = min(count, _FIRST_CANDIDATES)
    while True:
        part = np.argpartition(values, len(values) - size)[len(values) - size :] if size else np.empty(0, np.int64)
        ordered = part[np.lexsort((part, -values[part]))]
        reached = values[ordered].cumsum() if mass < np.inf else np.zeros(0)
        if len(reached) and reached[-1] >= mass:
            return ordered[: int(reached.searchsorted(mass)) + 1]
        if size == count:
            return ordered
        size = min(count, size * 8)
