"""A circuit breaker: small, pure, tested on every edge. No clock inside; seconds are passed in."""

import enum
from dataclasses import dataclass, replace
from typing import Final, Self

TRIP_FAILURES: Final = 3  # in a row, none of them before the last success
FIRST_SECONDS: Final = 1.0
LONGEST_SECONDS: Final = 60.0


class Circuit(enum.Enum):
    CLOSED = "closed"  # requests pass
    OPEN = "open"  # none passes, until a time
    HALF_OPEN = "half-open"  # one passes, to see


@dataclass(frozen=True, slots=True)
class Breaker:
    """Whether requests may be sent to a worker at which they have failed.

    failures     in a row while closed; TRIP_FAILURES of them open it
    trips        in a row: each opens it for twice as long as the one before, LONGEST_SECONDS at most
    open_until   seconds; from then on it is half-open
    probe        the decision that was let through while half-open, None while nobody has tried

    Failures of requests that were sent before it opened arrive while it is open, and change nothing.
    """

    failures: int = 0
    trips: int = 0
    open_until: float = 0.0
    probe: int | None = None

    def circuit(self, now: float) -> Circuit:
        if not self.trips:
            return Circuit.CLOSED
        return Circuit.OPEN if now < self.open_until else Circuit.HALF_OPEN

    def admits(self, now: float) -> bool:
        """Whether a request may be sent now."""
        circuit = self.circuit(now)
        return circuit is Circuit.CLOSED or (circuit is Circuit.HALF_OPEN and self.probe is None)

    def sent(self, decision: int, now: float) -> Self:
        """A request goes there; the first one while half-open is the probe."""
        if self.circuit(now) is Circuit.HALF_OPEN and self.probe is None:
            return replace(self, probe=decision)
        return self

    def failed(self, now: float) -> Self:
        """A request failed there."""
        match self.circuit(now):
            case Circuit.OPEN:
                return self
            case Circuit.CLOSED if self.failures + 1 < TRIP_FAILURES:
                return replace(self, failures=self.failures + 1)
            case _:
                seconds = min(LONGEST_SECONDS, FIRST_SECONDS * 2.0 ** min(self.trips, 10))
                return replace(self, failures=0, trips=self.trips + 1, open_until=now + seconds, probe=None)

    def succeeded(self, decision: int, now: float) -> Self:
        """A request was answered. While open or half-open only the probe's answer counts: others are older."""
        if self.circuit(now) is Circuit.CLOSED or decision == self.probe:
            return type(self)()
        return self

    def released(self, decision: int) -> Self:
        """A request ended; if it was the probe and told nothing, the next one may try."""
        return replace(self, probe=None) if decision == self.probe else self
