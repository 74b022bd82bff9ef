"""What is kept of a conversation when its turn has ended: the lease that holds it while its tools run."""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Literal, Self

from gateway.exchange import Exchange
from gateway.lease import Lease
from gateway.leasedsessions import LeasedSessions, Place
from gateway.prepare import Call
from gateway.tools.hermes import CallStart
from gateway.toolwaits import ToolWaits
from gateway.worker_wire import RetainRequest, Retention, RetentionRange, SpanWire
from gateway.workers import WorkerClient, WorkerFailedError, WorkerRefusedError

MAX_IN_FLIGHT = 256
OK = 200
TOOL_WAIT = "tool_wait"
POLICY = "policy"


class Retainer:
    """Asks the worker of a turn that ended in tool calls to keep the conversation until their results come.

    A client waits for none of it, and sees none of its failures: they are counted, and a lease more or less changes
    no answer. Whoever says itself how long to keep a conversation gets that and no more.

    worker     -> a client of the worker with this id, None when it has left
    sessions   told where each has a lease
    count      source and outcome of each lease
    priority   of the lease; 0 takes none
    """

    def __init__(
        self,
        worker: Callable[[str], WorkerClient | None],
        waits: ToolWaits,
        sessions: LeasedSessions,
        count: Callable[[str, Literal["taken", "failed"]], None],
        priority: int,
    ) -> None:
        self._worker = worker
        self._waits = waits
        self._sessions = sessions
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
        lease = call.lease
        if exchange.status != OK:
            return
        if lease is not None:
            self._taken(lease, exchange)
        if self._priority == 0 or not call.request.cache.store:
            return
        for index, (calls, reply) in enumerate(zip(exchange.calls, exchange.replies, strict=True)):
            if calls and lease is not None and lease.source != POLICY:
                self._waits.made(exchange.tenant_id, calls, "")
            elif calls:
                self._wait(call, exchange, calls, reply, _session(call, exchange, index))

    def _taken(self, lease: Lease, exchange: Exchange) -> None:
        self._count(lease.source, "taken")
        if lease.session and (lease.source != POLICY or lease.tokens is None):  # others share that of a template
            self._sessions.leased(exchange.tenant_id, lease.session, Place(exchange.worker_id, lease.session))

    def _wait(self, call: Call, exchange: Exchange, calls: list[CallStart], reply: list[int], session: str) -> None:
        """A policy's lease on the conversation stays beside that of the wait, which is short: of both the highest
        counts."""
        seconds = self._waits.made(exchange.tenant_id, calls, session)
        place = Place(exchange.worker_id, session if call.lease is None else f"{session}.wait")
        self._sessions.leased(exchange.tenant_id, session, place)
        request = RetainRequest(
            tokens=[*call.tokens, *reply],
            spans=[SpanWire(0, call.namespace.hex)],
            retention=Retention([RetentionRange(self._priority, round(seconds * 1000))], place.session),
            tag=call.tag,
        )
        self._ask(exchange.worker_id, request)

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
