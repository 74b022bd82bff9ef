"""Single requests, told from the ledger: to the tenant that sent them, and to operators."""

import msgspec
from starlette.routing import BaseRoute
from starlette.types import Scope, Send

from gateway.auth import Gate
from gateway.endpoint import get
from gateway.errors import NotFoundError
from gateway.reply import send_json
from gateway.reuse import Change, Explanation, Placed, hint
from tenants import MISS, MISSES, Database, LedgerRow, find_request


class RequestReuse(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one request's prompt tokens, for the tenant that sent it.

    missed_tokens   by reason; None when no worker told what it reused
    hint            what to change so that it does not happen again; None when nothing diverged
    """

    request_id: str
    created_at: int
    status: int
    model: str | None
    template: str | None
    prompt_tokens: int
    available_tokens: int
    routed_tokens: int
    cached_tokens: int
    missed_tokens: dict[str, int] | None
    diverged: Change | None
    hint: str | None


class RequestReport(RequestReuse, frozen=True, kw_only=True):
    """The same for an operator: with the tenant, and the decision, whose costs and times tell of everybody's load.

    queue_ms, ttft_ms   None where no worker began it
    """

    tenant: str | None
    worker: str | None
    placed: Placed | None
    queue_ms: float | None
    ttft_ms: float | None
    duration_ms: float


def report(row: LedgerRow) -> RequestReport:
    kept = _kept(row)
    missed = {name.removeprefix(MISS): getattr(row, name) for name in MISSES if getattr(row, name)}
    return RequestReport(
        request_id=row.request_id,
        created_at=row.created_at,
        status=row.status,
        model=row.model,
        template=row.template,
        prompt_tokens=row.prompt_tokens,
        available_tokens=row.available_tokens,
        routed_tokens=row.predicted_tokens,
        cached_tokens=row.cached_tokens,
        missed_tokens=None if row.miss_first_seen is None else missed,
        diverged=kept.diverged,
        hint=None if kept.diverged is None else hint(kept.diverged),
        tenant=row.tenant_id,
        worker=row.worker_id,
        placed=kept.placed,
        queue_ms=row.queue_ms,
        ttft_ms=row.ttft_ms,
        duration_ms=row.duration_ms,
    )


def _kept(row: LedgerRow) -> Explanation:
    """Nothing where another version wrote what this one cannot read; the counts are there all the same."""
    try:
        return Explanation() if row.explanation is None else msgspec.json.decode(row.explanation, type=Explanation)
    except msgspec.MsgspecError:
        return Explanation()


class Explanations:
    """GET /v1/saltway/requests/{id} for tenants' keys, GET /admin/api/requests/{id} for administrators'.

    A request is there as soon as the ledger has been written, well under a second after its end.
    """

    def __init__(self, gate: Gate, database: Database) -> None:
        self._gate = gate
        self._database = database

    def routes(self) -> list[BaseRoute]:
        return [
            get("/v1/saltway/requests/{id}", self.to_tenant),
            get("/admin/api/requests/{id}", self.to_operator),
        ]

    async def to_tenant(self, scope: Scope, send: Send) -> None:
        """Another tenant's request is not there: the same answer as for one that never was."""
        principal = await self._gate.tenant(scope)
        full = msgspec.structs.asdict(await self._report(scope["path_params"]["id"], principal.tenant_id))
        own = RequestReuse(**{name: full[name] for name in RequestReuse.__struct_fields__})
        await send_json(send, own, headers=[(b"cache-control", b"no-store")])

    async def to_operator(self, scope: Scope, send: Send) -> None:
        await self._gate.admin(scope)
        told = await self._report(scope["path_params"]["id"], None)
        await send_json(send, told, headers=[(b"cache-control", b"no-store")])

    async def _report(self, request_id: str, tenant_id: str | None) -> RequestReport:
        async with self._database.reading() as session:
            row = await find_request(session, request_id, tenant_id)
        if row is None:
            raise NotFoundError("There is no request of that id.", code="not_found")
        return report(row)
