"""Single requests, told from the ledger: to the tenant that sent them, to operators, and in words at the terminal."""

from collections.abc import Iterator

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
    """The same for an operator: with the tenant, and the decision, whose costs tell of everybody's load."""

    tenant: str | None
    worker: str | None
    placed: Placed | None


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
    )


def _kept(row: LedgerRow) -> Explanation:
    return Explanation() if row.explanation is None else msgspec.json.decode(row.explanation, type=Explanation)


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
        async with self._database.session() as session:
            row = await find_request(session, request_id, tenant_id)
        if row is None:
            raise NotFoundError("There is no request of that id.", code="not_found")
        return report(row)


_MEANING = {
    "parity": "predicted on the worker, but it did not have them",
    "routed_away": "another worker had them; see the decision",
    "worker_lost": "a worker had them that is gone or takes no requests",
    "evicted": "cached once, and evicted since",
    "tier_dropped": "cached once, and dropped from host or disk since",
    "not_stored": "sent before, and not stored (store=false, failed, or still being computed)",
    "salt_rotated": "sent before under an earlier salt",
    "diverged_tools": "sent before, behind tools that changed",
    "diverged_system": "sent before, behind a system prompt that changed",
    "diverged_history": "sent before, behind a history that changed",
    "diverged_volatile": "sent before, behind a value that changes each time",
    "first_seen": "new",
    "below_block": "below a full block, and the last block, which is always computed",
}


def lines(told: RequestReport) -> Iterator[str]:
    """For people, at a terminal."""
    yield f"request {told.request_id}, tenant {told.tenant or '-'}, model {told.model or '-'}, status {told.status}"
    yield f"prompt {told.prompt_tokens} tokens, template {told.template or '-'}"
    stages = (
        ("available somewhere", told.available_tokens),
        (f"routed (on {told.worker or '-'})", told.routed_tokens),
        ("delivered from cache", told.cached_tokens),
    )
    for name, tokens in stages:
        yield f"  {name:<24}{_amount(tokens, told.prompt_tokens)}"
    if told.missed_tokens is None:
        yield "No worker told what it reused, so nothing can be said of the rest."
    else:
        yield "computed, because"
        for reason, tokens in sorted(told.missed_tokens.items(), key=lambda item: -item[1]):
            yield f"  {reason:<24}{_amount(tokens, told.prompt_tokens)}  {_MEANING.get(reason, '')}"
    yield from _diverged(told)
    yield from _decision(told.placed)


def _amount(tokens: int, prompt: int) -> str:
    return f"{tokens:>8}{100 * tokens / prompt if prompt else 0:>7.1f} %"


def _diverged(told: RequestReport) -> Iterator[str]:
    if told.diverged is not None:
        change = told.diverged
        where = f"{change.part.value}[{change.index}], token {change.token}"
        yield f"diverged in {where}: {change.kind.value.replace('_', ' ')}; it cost {change.tokens} tokens"
        yield f"  {told.hint}"


def _decision(placed: Placed | None) -> Iterator[str]:
    if placed is None:
        yield "It was never placed on a worker."
        return
    yield f"placed on {placed.worker} ({placed.reason}, by {placed.mode})"
    yield f"  {placed.worker:<24}{_costs(placed.cost_ms)}"
    if placed.runner_up is not None and placed.runner_up_cost_ms is not None:
        yield f"  {placed.runner_up:<24}{_costs(placed.runner_up_cost_ms)}"


def _costs(terms: dict[str, float]) -> str:
    parts = " + ".join(f"{name} {value:.1f}" for name, value in terms.items() if name != "total" and value)
    return f"{terms['total']:.1f} ms" + (f" = {parts}" if parts else "")
