"""What the engine had to compute, what it was spared, and what was put off."""

from dataclasses import dataclass, field

from worker.wire import Cached


@dataclass(slots=True)
class Work:
    """Since the start. The engine's thread counts; any other may read.

    prefilled     prompt tokens computed, again after a preemption too
    reused        prompt tokens reused in whole blocks, by tier
    partial       prompt tokens reused beyond them
    preemptions   sequences that gave up their slot
    """

    prefilled: int = 0
    reused: list[int] = field(default_factory=lambda: [0, 0, 0])
    partial: int = 0
    preemptions: int = 0

    def spare(self, cached: Cached) -> None:
        """A request begins with so much of its prompt."""
        for tier, count in enumerate((cached.device, cached.host, cached.disk)):
            self.reused[tier] += count
        self.partial += cached.partial
