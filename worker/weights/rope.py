"""How far each pair of a head turns from one position to the next: plain rotary embedding and its ways to be stretched.

All frequencies are in radians per position, one for each pair of dimensions, fastest first.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from worker.weights.errors import ModelError

_MOST_ORIGINAL = 1 << 26  # tokens, as of a model's context
_LEAST_BETA = 1e-6  # far below any real one: next to 0 the pair that turns so often is endlessly far


@dataclass(frozen=True, slots=True)
class Rope:
    """frequencies   head_dim / 2 of them
    amplitude        that cosines and sines are multiplied by, for queries and keys alike
    """

    frequencies: tuple[float, ...]
    amplitude: float = 1.0

    def linear(self, factor: float) -> "Rope":
        """Positions pressed together by a factor.

        source   Chen et al., "Extending context window of large language models via positional interpolation", 2023
        """
        _check_factor(factor)
        return self.divided([factor] * len(self.frequencies))

    def divided(self, factors: Sequence[float]) -> "Rope":
        """Each frequency by a factor of its own, as a GGUF file's rope_freqs.weight lists them."""
        pairs = zip(self.frequencies, factors, strict=True)
        return Rope(tuple(frequency / factor for frequency, factor in pairs), self.amplitude)


def plain(base: float, head_dim: int) -> Rope:
    """source   Su et al., "RoFormer", 2021"""
    if base <= 1:
        raise ModelError(f"rotary embedding: the base is {base}, and must be above 1")
    return Rope(tuple(base ** (-pair / head_dim) for pair in range(0, head_dim, 2)))


def llama3(rope: Rope, factor: float, low: float, high: float, original: int) -> Rope:
    """Slow pairs pressed together by the factor, fast ones left alone, and a smooth change between.

    low, high   turns within the original context: pairs that make fewer than low are slow, more than high are fast
    source      "rope_type": "llama3" of Llama 3.1's published configuration
    """
    _check_factor(factor)
    _check_original(original)
    if low >= high:
        raise ModelError("rotary embedding: llama3 needs a low factor below the high one")

    def stretched(frequency: float) -> float:
        turns = original * frequency / (2 * math.pi)
        kept = min(1.0, max(0.0, (turns - low) / (high - low)))
        return frequency * (kept + (1 - kept) / factor)

    return Rope(tuple(map(stretched, rope.frequencies)), rope.amplitude)


@dataclass(frozen=True, slots=True)
class Yarn:
    """The parameters of YaRN.

    original    tokens of context that the model was trained with
    amplitude   None for the paper's own, 0.1 ln(factor) + 1
    fast, slow  turns within the original context, above which a pair is kept and below which it is pressed together
    truncate    whether the pairs where the ramp begins and ends are rounded to whole ones
    """

    factor: float
    original: int
    amplitude: float | None = None
    fast: float = 32.0
    slow: float = 1.0
    truncate: bool = True

    def __post_init__(self) -> None:
        _check_factor(self.factor)
        _check_original(self.original)
        if min(self.fast, self.slow) < _LEAST_BETA:
            raise ModelError(f"rotary embedding: YaRN needs betas of {_LEAST_BETA} or more")


def yarn(base: float, head_dim: int, chosen: Yarn) -> Rope:
    """source   Peng et al., "YaRN: efficient context window extension of large language models", 2023, 3.2 to 3.4"""

    turns = enumerate(plain(base, head_dim).frequencies)

    def pair_that_turns(times: float) -> float:
        return head_dim * math.log(chosen.original / (times * 2 * math.pi)) / (2 * math.log(base))

    first, last = pair_that_turns(chosen.fast), pair_that_turns(chosen.slow)
    if chosen.truncate:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, head_dim - 1)
    width = (last - first) or 0.001

    def stretched(pair: int, frequency: float) -> float:
        pressed = min(1.0, max(0.0, (pair - first) / width))
        return frequency * (1 - pressed + pressed / chosen.factor)

    amplitude = yarn_amplitude(chosen.factor) if chosen.amplitude is None else chosen.amplitude
    return Rope(tuple(stretched(pair, frequency) for pair, frequency in turns), amplitude)


def yarn_amplitude(factor: float, share: float = 1.0) -> float:
    """What makes up for the attention that spreads over a longer context; the paper's for a share of 1."""
    return 0.1 * share * math.log(factor) + 1.0 if factor > 1 else 1.0


def _check_factor(factor: float) -> None:
    if factor < 1:
        raise ModelError(f"rotary embedding: the factor is {factor}, and must be at least 1")


def _check_original(tokens: int) -> None:
    if not 1 <= tokens <= _MOST_ORIGINAL:
        raise ModelError(f"rotary embedding: the original context is {tokens}; from 1 to {_MOST_ORIGINAL} is possible")
