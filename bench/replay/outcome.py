"""What a replay comes to."""

from collections.abc import Sequence
from statistics import median
from typing import Self

import msgspec

from bench.replay.engine import Job


class Outcome(msgspec.Struct, frozen=True):
    """Figures of one run.

    hit_rate         blocks that were reused, of all blocks of all prompts
    imbalance        prompt tokens that the busiest worker computed, over the mean
    ttft_*_ms        from arrival to the end of prefill
    decision_p50_us  CPU time of the policy's choice; the only figure that depends on the machine
    computed_tokens  by all workers, and by each
    """

    hit_rate: float
    imbalance: float
    ttft_p50_ms: float
    ttft_p99_ms: float
    ttft_mean_ms: float
    decision_p50_us: float
    decision_p99_us: float
    computed_tokens: int
    by_worker: list[int]

    @classmethod
    def of(cls, jobs: Sequence[Job], computed: Sequence[int], decision_ns: Sequence[int]) -> Self:
        waits = sorted(1000 * (job.prefilled - job.arrived) for job in jobs)
        decisions = sorted(decision_ns)
        mean = sum(computed) / len(computed)
        return cls(
            hit_rate=sum(job.cached for job in jobs) / max(1, sum(len(job.request.chain) for job in jobs)),
            imbalance=max(computed) / mean if mean else 1.0,
            ttft_p50_ms=median(waits),
            ttft_p99_ms=waits[int(0.99 * (len(waits) - 1))],
            ttft_mean_ms=sum(waits) / len(waits),
            decision_p50_us=median(decisions) / 1000,
            decision_p99_us=decisions[int(0.99 * (len(decisions) - 1))] / 1000,
            computed_tokens=sum(computed),
            by_worker=list(computed),
        )
