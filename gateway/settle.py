"""The end of every request: one ledger row, one log line, the counters, and the live view."""

import asyncio

import msgspec
from structlog.typing import FilteringBoundLogger

from cacheplane.attribution import Reason
from gateway.exchange import Exchange, Judged
from gateway.live import LiveRequests
from gateway.logs import get_logger
from gateway.metrics import Metrics
from gateway.reuse import explanation
from tenants import MISS, Ledger, LedgerRow


class Settlement:
    """Called exactly once for each authenticated request, however it ended; never waits and never raises."""

    def __init__(self, ledger: Ledger, metrics: Metrics, live: LiveRequests) -> None:
        self._ledger = ledger
        self._metrics = metrics
        self._live = live
        self._log: FilteringBoundLogger = get_logger("request")

    def settle(self, exchange: Exchange) -> None:
        exchange.close()
        self._live.leave(exchange)
        self._ledger.append(_row(exchange))
        self._metrics.settled(exchange)
        self._log.info("request", **_line(exchange))
        if exchange.outputs is not None and exchange.outputs.any:
            self._check(exchange.id, exchange.outputs)

    def _check(self, request_id: str, outputs: Judged) -> None:
        """A second opinion on what the grammar let through, in a thread. The client has it already: it is for us."""
        checking = asyncio.get_running_loop().run_in_executor(None, outputs.violations)
        checking.add_done_callback(lambda done: self._judged(request_id, done))

    def _judged(self, request_id: str, done: "asyncio.Future[list[str]]") -> None:
        if done.cancelled():
            return
        failure = done.exception()
        violations = [type(failure).__name__] if failure else done.result()
        self._metrics.checked(valid=not violations)
        if violations:
            self._log.error("output violates its schema", request_id=request_id, keywords=violations)


def _row(exchange: Exchange) -> LedgerRow:
    return LedgerRow(
        request_id=exchange.id,
        created_at=exchange.created_at,
        dialect=exchange.dialect,
        status=exchange.status,
        tenant_id=exchange.tenant_id or None,
        key_id=exchange.key_id or None,
        model=exchange.model or None,
        worker_id=exchange.worker_id or None,
        finish_reason=exchange.finish_reason,
        error_code=exchange.error_code,
        streamed=exchange.streamed,
        prompt_tokens=exchange.prompt_tokens,
        cached_tokens=exchange.cached_tokens,
        predicted_tokens=exchange.predicted_tokens,
        available_tokens=exchange.available_tokens,
        completion_tokens=exchange.completion_tokens,
        placement_mode=exchange.placement_mode or None,
        placement_reason=exchange.placement_reason or None,
        queue_ms=exchange.queue_ms,
        ttft_ms=exchange.ttft_ms,
        duration_ms=exchange.duration_ms,
        overhead_ms=exchange.overhead_ms or 0.0,
        template=exchange.template or None,
        explanation=msgspec.json.encode(explanation(exchange)).decode(),
        **_misses(exchange),
    )


def _misses(exchange: Exchange) -> dict[str, int]:
    if exchange.misses is None:
        return {}
    return {MISS + reason: exchange.misses.tokens.get(reason, 0) for reason in Reason}


def _line(exchange: Exchange) -> dict[str, object]:
    """What the log says of a request: ids, counts and times, nothing that a client wrote."""
    return {
        "request_id": exchange.id,
        "tenant": exchange.tenant_id,
        "key": exchange.key_id,
        "model": exchange.model,
        "worker": exchange.worker_id,
        "status": exchange.status,
        "finish": exchange.finish_reason,
        "error": exchange.error_code,
        "streamed": exchange.streamed,
        "attempts": exchange.attempts,
        "resumed": exchange.resumed,
        "placement": exchange.placement_mode,
        "prompt_tokens": exchange.prompt_tokens,
        "cached_tokens": exchange.cached_tokens,
        "predicted_tokens": exchange.predicted_tokens,
        "available_tokens": exchange.available_tokens,
        "misses": None if exchange.misses is None else dict(exchange.misses.tokens),
        "completion_tokens": exchange.completion_tokens,
        "queue_ms": round(exchange.queue_ms, 2),
        "ttft_ms": None if exchange.ttft_ms is None else round(exchange.ttft_ms, 2),
        "duration_ms": round(exchange.duration_ms, 2),
        "overhead_ms": round(exchange.overhead_ms or 0.0, 3),
    }
