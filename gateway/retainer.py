"""What is kept of a conversation when its turn has ended: the lease that holds it while its tools run."""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Literal, Self

from gateway.exchange import Exchange
from gateway.prepare import Call
from gateway.toolwaits import ToolWaits
from gateway.worker_wire import RetainRequest, Retention, RetentionRange, SpanWire
from gateway.workers import WorkerClient, WorkerFailedError, WorkerRefusedError

MAX_IN_FLIGHT = 256
OK = 200
TOOL_WAIT = "tool_wait"


class Retainer:
    """Asks the worker of a turn that ended in tool calls to keep the conversation until their results come.

    A client waits for none of it, and sees none of its failures: they are counted, and a lease more or less changes
    no answer. Whoever says itself how long to keep a conversation gets that and no more.

    worker     -> a client of the worker with this id, None when it has left
    count      source and outcome of each lease
    priority   of the lease; 0 takes none
    """

    def __init__(
        self,
        worker: Callable[[str], WorkerClient | None],
        waits: ToolWaits,
        count: Callable[[str, Literal["taken", "failed"]], None],
        priority: int,
    ) -> None:
        self._worker = worker
        self._waits = waits
        self._count = count
        self._priority = priority
        self._asking: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._asking:
            task.cancel()
        await asyncio.gather(*self._asking, return_exceptions=True)

    def turn_ended(self, call: Call, exchange: Exchange) -> None:
        """Returns at once. Of a turn that was not answered whole nothing is kept."""
        cache = call.request.cache
        if exchange.status != OK:
            return
        if cache.retention is not None:
            self._count(cache.retention.source, "taken")
        if self._priority == 0 or not cache.store:
            return
        for index, (calls, reply) in enumerate(zip(exchange.calls, exchange.replies, strict=True)):
            if calls and cache.retention is not None:
                self._waits.made(exchange.tenant_id, calls, "")
            elif calls:
                session = _session(call, exchange, index)
                seconds = self._waits.made(exchange.tenant_id, calls, session)
                self._ask(exchange.worker_id, self._lease(call, reply, seconds, session))

    def _lease(self, call: Call, reply: list[int], seconds: float, session: str) -> RetainRequest:
        return RetainRequest(
            tokens=call.tokens + reply,
            spans=[SpanWire(0, call.namespace.hex)],
            retention=Retention([RetentionRange(self._priority, round(seconds * 1000))], session),
            tag=call.tag,
        )

    def _ask(self, worker_id: str, request: RetainRequest) -> None:
        if len(self._asking) >= MAX_IN_FLIGHT:
            self._count(TOOL_WAIT, "failed")
            return
        task = asyncio.create_task(self._retain(worker_id, request), name="retain")
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    async def _retain(self, worker_id: str, request: RetainRequest) -> None:
        client = self._worker(worker_id)
        try:
            if client is None:
                raise WorkerFailedError("replaced")
            await client.retain(request)
        except (WorkerFailedError, WorkerRefusedError):
            self._count(TOOL_WAIT, "failed")
        else:
            self._count(TOOL_WAIT, "taken")


def _session(call: Call, exchange: Exchange, index: int) -> str:
    """The lease of a turn takes the place of the last one's. Which of several choices is gone on with is not known:
    each but the first has a session of its own."""
    return f"{exchange.id}.{index}" if index else call.session or exchange.id
