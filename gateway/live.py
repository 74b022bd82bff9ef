"""The requests in flight and the last ones that ended, for the operator's page. Bounded, in memory, without text."""

import time
from collections import deque

import msgspec

from gateway.exchange import Exchange

RECENT = 200


class LiveRequest(msgspec.Struct, frozen=True):
    """A request in flight. `age_ms` counts from its arrival."""

    id: str
    tenant: str
    model: str
    worker: str
    state: str
    streamed: bool
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    age_ms: float


class RecentRequest(msgspec.Struct, frozen=True):
    """A request that has ended. `ended_at`: milliseconds since 1970, UTC."""

    id: str
    tenant: str
    model: str
    worker: str
    status: int
    finish_reason: str | None
    error_code: str | None
    streamed: bool
    prompt_tokens: int
    cached_tokens: int
    predicted_tokens: int
    completion_tokens: int
    ttft_ms: float | None
    overhead_ms: float
    duration_ms: float
    placement: str
    ended_at: int


class LiveRequests:
    """Register of exchanges: `enter` once authenticated, `leave` when settled, in whatever way the request ended."""

    def __init__(self, recent: int = RECENT) -> None:
        self._in_flight: dict[str, Exchange] = {}
        self._recent: deque[RecentRequest] = deque(maxlen=recent)

    def __len__(self) -> int:
        return len(self._in_flight)

    def enter(self, exchange: Exchange) -> None:
        self._in_flight[exchange.id] = exchange

    def leave(self, exchange: Exchange) -> None:
        if self._in_flight.pop(exchange.id, None) is not None:
            self._recent.append(_recent(exchange))

    def in_flight(self) -> list[LiveRequest]:
        """Oldest first."""
        return [_live(exchange) for exchange in self._in_flight.values()]

    def recent(self) -> list[RecentRequest]:
        """Latest first."""
        return list(reversed(self._recent))


def _live(exchange: Exchange) -> LiveRequest:
    return LiveRequest(
        id=exchange.id,
        tenant=exchange.tenant_id,
        model=exchange.model,
        worker=exchange.worker_id,
        state=exchange.state,
        streamed=exchange.streamed,
        prompt_tokens=exchange.prompt_tokens,
        cached_tokens=exchange.cached_tokens,
        completion_tokens=exchange.completion_tokens,
        age_ms=round(exchange.watch.total_ms, 1),
    )


def _recent(exchange: Exchange) -> RecentRequest:
    return RecentRequest(
        id=exchange.id,
        tenant=exchange.tenant_id,
        model=exchange.model,
        worker=exchange.worker_id,
        status=exchange.status,
        finish_reason=exchange.finish_reason,
        error_code=exchange.error_code,
        streamed=exchange.streamed,
        prompt_tokens=exchange.prompt_tokens,
        cached_tokens=exchange.cached_tokens,
        predicted_tokens=exchange.predicted_tokens,
        completion_tokens=exchange.completion_tokens,
        ttft_ms=None if exchange.ttft_ms is None else round(exchange.ttft_ms, 1),
        overhead_ms=round(exchange.overhead_ms or 0.0, 2),
        duration_ms=round(exchange.duration_ms, 1),
        placement=exchange.placement_mode,
        ended_at=time.time_ns() // 1_000_000,
    )
