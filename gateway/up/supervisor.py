"""Keeps children running, and stops them in order."""

import time
from collections.abc import Callable, Sequence

from gateway.up.child import Child

FIRST_DELAY_S = 0.5
LONGEST_DELAY_S = 10.0
STEADY_S = 30.0  # one that ran this long has recovered: its next fall is the first again
POLL_S = 0.05

Say = Callable[[str], None]


class Watched:
    """One child's history: when it was started, how often it fell in a row, when to start it again."""

    def __init__(self, child: Child) -> None:
        self.child = child
        self.started_at = 0.0
        self.falls = 0
        self.due_at: float | None = None

    def start(self, now: float) -> None:
        self.started_at = now
        self.due_at = None
        self.child.start()

    def fell(self, now: float) -> float:
        """Notes a fall and returns the seconds until the next start."""
        self.falls = 1 if now - self.started_at >= STEADY_S else self.falls + 1
        delay: float = min(FIRST_DELAY_S * 2 ** min(self.falls - 1, 10), LONGEST_DELAY_S)
        self.due_at = now + delay
        return delay


class Supervisor:
    """Children in stages: started first stage first, stopped last stage first, restarted each on its own.

    tend    to be called often; restarts what has died, at the same address, later and later if it keeps dying
    stop    always returns with no child running
    """

    def __init__(
        self, stages: Sequence[Sequence[Child]], say: Say, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stages = [[Watched(child) for child in stage] for stage in stages]
        self._say = say
        self._clock = clock

    @property
    def watched(self) -> list[Watched]:
        return [watched for stage in self._stages for watched in stage]

    def start(self) -> None:
        for watched in self.watched:
            watched.start(self._clock())

    def tend(self) -> None:
        for watched in self.watched:
            if not watched.child.running:
                self._revive(watched, self._clock())

    def _revive(self, watched: Watched, now: float) -> None:
        child = watched.child
        if watched.due_at is None:
            delay = watched.fell(now)
            self._say(f"{child.name} stopped ({_ending(child.exit_code)}); starting it again in {delay:g} s")
        elif now >= watched.due_at:
            watched.start(now)

    def stop(self, grace_s: float, hurry: Callable[[], bool] = lambda: False) -> None:
        """Asks each stage to end and kills what has not after `grace_s`, or as soon as `hurry` says so."""
        for stage in reversed(self._stages):
            children = [watched.child for watched in stage]
            for child in children:
                child.terminate()
            deadline = time.monotonic() + grace_s
            while any(child.running for child in children) and time.monotonic() < deadline and not hurry():
                time.sleep(POLL_S)
            for child in children:
                child.kill()
                child.forget()


def _ending(exit_code: int | None) -> str:
    if exit_code is not None and exit_code < 0:
        return f"signal {-exit_code}"
    return f"exit code {exit_code}"
