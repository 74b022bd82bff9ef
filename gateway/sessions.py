"""The end of a session, said by the client: its leases end with it."""

import asyncio
from collections.abc import Callable, Mapping
from typing import NamedTuple

from starlette.routing import BaseRoute
from starlette.types import Scope, Send

from gateway.auth import Gate
from gateway.chat.turns import short
from gateway.endpoint import delete
from gateway.errors import BadRequestError
from gateway.leasedsessions import LeasedSessions, Place
from gateway.reply import Reply
from gateway.tags import tag_of
from gateway.worker_wire import ReleaseRequest
from gateway.workers import WorkerClient, WorkerFailedError, WorkerRefusedError

AT_ONCE = 64  # releases that are under way to workers, of all tenants


class Ended(NamedTuple):
    """How many leases workers were told to let go of, and how many could not be told: those run out by themselves."""

    told: int
    failed: int


class Sessions:
    """DELETE /v1/sessions/{id}: the client will not go on with this session.

    Answered 204 however often it is said, and whether there is such a session or not. Workers know a session by its
    tenant's tag, so nobody ends another tenant's. What a request of the session takes that is still running lasts.

    workers   -> clients of the workers that were met, by id
    count     told how many leases each end was told to, and how many it was not
    """

    def __init__(
        self,
        gate: Gate,
        leased: LeasedSessions,
        workers: Callable[[], Mapping[str, WorkerClient]],
        count: Callable[[int, int], None],
        secret: bytes,
    ) -> None:
        self._gate = gate
        self._leased = leased
        self._workers = workers
        self._count = count
        self._secret = secret
        self._room = asyncio.Semaphore(AT_ONCE)

    def routes(self) -> list[BaseRoute]:
        return [delete("/v1/sessions/{id:path}", self.respond)]

    async def respond(self, scope: Scope, send: Send) -> None:
        principal = await self._gate.tenant(scope)
        session = short(scope["path_params"]["id"], "id")
        if not session:
            raise BadRequestError("A session is named by what it was called, or by a request's id.", param="id")
        self._count(*await self.end(principal.tenant_id or "", session))
        await Reply(send).nothing()

    async def end(self, tenant_id: str, session: str) -> Ended:
        """Tells the workers that hold leases of the session; all of them where that is not known."""
        workers, places = self._workers(), self._leased.ended(tenant_id, session)
        if places is None:
            places = [Place(worker_id, session) for worker_id in workers]
        tag = tag_of(self._secret, tenant_id)
        present = [(workers[place.worker_id], place.session) for place in places if place.worker_id in workers]
        told = await asyncio.gather(*(self._release(client, ReleaseRequest(tag, name)) for client, name in present))
        return Ended(sum(told), len(told) - sum(told))

    async def _release(self, client: WorkerClient, request: ReleaseRequest) -> bool:
        try:
            async with self._room:
                await client.release(request)
        except (WorkerFailedError, WorkerRefusedError):
            return False
        return True
