"""What a request is expected to cost on each worker, in milliseconds."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cacheplane.gauges import Floats, Gauge, queued_tokens
from cacheplane.reach import Prompt, Reach

# Tokens per second where neither the worker nor its like have measured any; low for a GPU, so that a cache hit is
# never underrated.
PRIOR_PREFILL_TPS: Final = 1_000.0
PRIOR_HOST_TPS: Final = 100_000.0
PRIOR_DISK_TPS: Final = 20_000.0
PRIOR_STEP_MS: Final = 20.0
# No rate counts as less: what a worker says may be a number so small that its cost would be infinite, and a sum of
# costs of which one is infinite ranks nobody.
LEAST_TPS: Final = 1e-3

# What computing again, that which another worker holds, takes from everybody, as a multiple of its own time. In an
# M/G/1 queue work added at utilisation r delays all who come later by r^2 (1 + cv^2) / (2 (1 - r)^2) times itself:
# with the prompt lengths of public traces (cv^2 about 3) 0.9 times at 0.4, 18 times at 0.75, 32 times at 0.8. Every
# hour is priced as a busy one: what is moved in a quiet hour is missing in a busy one, and its queues are short.
WORK_PRICE: Final = 20.0
# Work beyond so many even shares of what was lately missed is priced the same: the fleet is as fast as its busiest
# worker. Else a system prompt that everybody shares would draw all sessions to the worker that had it first.
EVEN_SHARES: Final = 1.5
# The most that a request is asked to wait for the sake of others.
PATIENCE_MS: Final = 15_000.0

# How much of the recently missed work weighs against a hit. Less lets a popular prefix draw all new work to one
# worker, more makes sessions leave their blocks to even out small differences.
RECENT_WEIGHT: Final = 0.1


@dataclass(frozen=True, slots=True)
class Cost:
    """What a request is expected to cost on one worker, all in milliseconds.

    queue_ms     computing the prompt tokens that are before it, our own fresh decisions included
    prefill_ms   computing its own tokens that are not cached
    load_ms      bringing its blocks back from host and disk
    decode_ms    one decode step for each sequence beside it: what a busy batch takes from everyone
    others_ms    what it takes from the requests that come after it: computing again what another worker holds, or
                 working where far more than an even share was done lately; above the worker with least
    recent_ms    a share of the work that the worker was lately sent, see `Missed`
    """

    queue_ms: float = 0.0
    prefill_ms: float = 0.0
    load_ms: float = 0.0
    decode_ms: float = 0.0
    others_ms: float = 0.0
    recent_ms: float = 0.0

    @property
    def total_ms(self) -> float:
        return self.queue_ms + self.prefill_ms + self.load_ms + self.decode_ms + self.others_ms + self.recent_ms


@dataclass(frozen=True, slots=True)
class Costs:
    """The same for all workers of a line: float64[terms, workers] in the order of `Cost`, and what they rest on.

    expected   tokens that need not be computed, by worker
    """

    terms: Floats
    expected: Floats

    @property
    def total_ms(self) -> Floats:
        # To the microsecond: replicas sum the same terms in another order and must still see the same tie.
        totals: Floats = self.terms.sum(axis=0).round(3)
        return totals

    def of(self, place: int) -> Cost:
        return Cost(*self.terms[:, place].tolist())


def price(
    prompt: Prompt, reach: Reach, gauges: Floats, recent_ms: Floats, able: NDArray[np.bool_] | None, now: float
) -> Costs:
    """The cost on every worker.

    gauges      float64[len(Gauge), workers]
    recent_ms   work lately sent, unweighted
    able        which workers may be chosen, None for all
    """
    tps = _known(gauges[Gauge.PREFILL_TPS], PRIOR_PREFILL_TPS)
    host_tps = _known(gauges[Gauge.HOST_TPS], PRIOR_HOST_TPS)
    disk_tps = _known(gauges[Gauge.DISK_TPS], PRIOR_DISK_TPS)
    # A worker loads only what it cannot compute as fast.
    host, disk = reach.host * (host_tps > tps), reach.disk * (disk_tps > tps)
    expected = np.maximum(reach.device + host + disk, reach.sent)
    ms_per_token = 1000 / tps
    most = (expected if able is None else expected[able]).max()
    again = (most - expected) * ms_per_token
    beyond = np.maximum(0.0, recent_ms - EVEN_SHARES * recent_ms.mean())
    others = (WORK_PRICE - 1) * (again + beyond)
    least = (others if able is None else others[able]).min()
    steps = np.where(gauges[Gauge.STEP_MS] > 0, gauges[Gauge.STEP_MS], PRIOR_STEP_MS)
    terms = np.stack(
        [
            queued_tokens(gauges, now) * ms_per_token,
            (prompt.tokens - expected) * ms_per_token,
            1000 * host / host_tps + 1000 * disk / disk_tps,
            gauges[Gauge.SEQUENCES] * steps,
            np.clip(others - least, 0.0, PATIENCE_MS),
            RECENT_WEIGHT * recent_ms,
        ]
    )
    return Costs(terms, expected)


def _known(rates: Floats, prior: float) -> Floats:
    """Rates with the gaps filled: a worker that has measured nothing yet is taken to be like the others."""
    if not rates.all():
        measured = rates[rates > 0]
        rates = np.where(rates > 0, rates, measured.mean() if measured.size else prior)
    return np.maximum(rates, LEAST_TPS)
