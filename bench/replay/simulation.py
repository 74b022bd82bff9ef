"""A trace played on simulated workers: events in order of time, one policy in charge."""

import heapq
import itertools
import time
from collections.abc import Callable
from typing import Final

from bench.replay.engine import Engine, Job, Machine
from bench.replay.outcome import Outcome
from bench.replay.policies import Policy
from bench.replay.trace import Request, Trace

HEARTBEAT_SECONDS: Final = 1.0


class Simulation:
    """One run. Events of one moment happen in the order in which they were scheduled.

    Requests reach a worker at once, and block events reach the policy at once.
    """

    def __init__(self, trace: Trace, machine: Machine, workers: int, policy: Policy) -> None:
        self.engines = [Engine(machine) for _ in range(workers)]
        self._trace, self._policy = trace, policy
        self._order = itertools.count()
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._jobs: list[Job] = []
        self._decision_ns: list[int] = []
        self._open = 0

    def run(self) -> Outcome:
        self._open = len(self._trace.requests)
        for number in range(len(self.engines)):
            if self._policy.listens:
                self._beat(number, 0.0)
        for request in self._trace.requests:
            self._at(request.at, lambda now, request=request: self._arrive(request, now))  # type: ignore[misc]
        while self._open:
            now, _, act = heapq.heappop(self._events)
            act(now)
        return Outcome.of(self._jobs, [engine.computed_tokens for engine in self.engines], self._decision_ns)

    def _at(self, when: float, act: Callable[[float], None]) -> None:
        heapq.heappush(self._events, (when, next(self._order), act))

    def _beat(self, number: int, now: float) -> None:
        self._policy.heard(number, self.engines[number].report(now), now)
        self._at(now + HEARTBEAT_SECONDS, lambda later: self._beat(number, later))

    def _arrive(self, request: Request, now: float) -> None:
        began = time.thread_time_ns()
        number = self._policy.choose(request, now)
        self._decision_ns.append(time.thread_time_ns() - began)
        job = Job(request, now)
        self._jobs.append(job)
        self._computed(number, self.engines[number].accept(job, now))

    def _computed(self, number: int, when: float | None) -> None:
        if when is not None:
            self._at(when, lambda now: self._prefilled(number, now))

    def _prefilled(self, number: int, now: float) -> None:
        job, last, batch = self.engines[number].prefilled(now)
        self._policy.stored(number, batch)
        self._policy.prefilled(job.request, number)
        self._at(last, lambda later: self._ended(number, job, later))
        self._computed(number, self.engines[number].begin(now))

    def _ended(self, number: int, job: Job, now: float) -> None:
        engine = self.engines[number]
        engine.ended(job)
        self._open -= 1
        self._policy.ended(job.request, number, job.cached * job.request.chain.block_size)
        if self._policy.listens:
            self._policy.refreshed(number, engine.report(now), now)
