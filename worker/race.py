"""Drawing by weight: every token runs a race of its own length, and the first to arrive is drawn."""

import numpy as np
from numpy.typing import NDArray


def race(weights: NDArray[np.floating], tokens: NDArray[np.int64], key: int) -> int:
    """The index of one of the tokens, drawn by weight.

    weights   at least one above 0
    tokens    as many ids; who gets which random number depends on `key` and the id alone
    key       64 random bits, anew for each draw

    Each token arrives after a time that is exponentially distributed, its weight being the rate; the probability of
    being first is then the share of the weights. Unlike a look-up in the sum of all weights, this hardly ever draws
    another token because weights differ in their last digits: that takes two tokens that arrive together, where a sum
    over the vocabulary moves the place of every token behind it.

    source   the exponential race, that is Gumbel-max: Maddison, Tarlow and Minka, "A* Sampling", 2014
    """
    parts = _uniform(tokens, key)
    with np.errstate(divide="ignore"):
        soonest = parts / weights
        first = int(soonest.argmin())
        # A time is -log(1 - part) / weight, which is never less than part / weight: few can still be before the first.
        near = np.flatnonzero(soonest <= -np.log1p(-parts[first]) / weights[first])
        return int(near[(-np.log1p(-parts[near]) / weights[near]).argmin()])


def _uniform(tokens: NDArray[np.int64], key: int) -> NDArray[np.float64]:
    """Between 0 and 1, both excluded: SplitMix64's output function of key + id * its odd constant.

    source   Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014
    """
    mixed = tokens.astype(np.uint64)
    mixed *= np.uint64(0x9E3779B97F4A7C15)
    mixed += np.uint64(key)
    mixed ^= mixed >> np.uint64(30)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return ((mixed >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
