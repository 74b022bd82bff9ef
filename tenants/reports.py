"""What the ledger says: reuse per tenant over a window, why the rest was missed, and single requests."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from tenants.schema import MISS, MISSES, LedgerRow

MAX_RECENT = 1_000
MAX_TEMPLATES = 100
OTHERS = "other"


@dataclass(frozen=True, slots=True)
class HitRate:
    """Sums over one tenant's requests in a window; every count but `requests` is in tokens."""

    tenant_id: str
    requests: int
    prompt: int
    available: int
    predicted: int
    cached: int
    completion: int

    @property
    def ratio(self) -> float:
        """The part of all prompt tokens that workers reused, 0 to 1; 0 where nothing was asked."""
        return self.cached / self.prompt if self.prompt else 0.0


async def hit_rates(session: AsyncSession, since_ms: int) -> list[HitRate]:
    """Per tenant with requests at or after `since_ms`, by tenant id; requests without a tenant are left out."""
    query = (
        select(
            LedgerRow.tenant_id,
            func.count(),
            func.sum(LedgerRow.prompt_tokens),
            func.sum(LedgerRow.available_tokens),
            func.sum(LedgerRow.predicted_tokens),
            func.sum(LedgerRow.cached_tokens),
            func.sum(LedgerRow.completion_tokens),
        )
        .where(LedgerRow.tenant_id.is_not(None), LedgerRow.created_at >= since_ms)
        .group_by(LedgerRow.tenant_id)
        .order_by(LedgerRow.tenant_id)
    )
    rows = (await session.execute(query)).all()
    return [HitRate(tenant_id or "", *counts) for tenant_id, *counts in rows]


async def recent(session: AsyncSession, limit: int = 50, tenant_id: str | None = None) -> Sequence[LedgerRow]:
    """The latest requests, newest first: of one tenant, or of all and of none. At most 1,000."""
    query = select(LedgerRow).order_by(LedgerRow.created_at.desc(), LedgerRow.request_id)
    if tenant_id is not None:
        query = query.where(LedgerRow.tenant_id == tenant_id)
    return (await session.scalars(query.limit(max(0, min(limit, MAX_RECENT))))).all()


@dataclass(frozen=True, slots=True)
class TemplateMisses:
    """Sums over a tenant's requests with one system prompt and one set of tools; tokens.

    misses   by reason, those that are not 0; they add up to prompt - cached
    """

    tenant_id: str
    template: str
    requests: int
    prompt: int
    available: int
    predicted: int
    cached: int
    misses: dict[str, int]

    def with_others(self, other: "TemplateMisses") -> "TemplateMisses":
        reasons = [*self.misses, *(reason for reason in other.misses if reason not in self.misses)]
        return replace(
            self,
            requests=self.requests + other.requests,
            prompt=self.prompt + other.prompt,
            available=self.available + other.available,
            predicted=self.predicted + other.predicted,
            cached=self.cached + other.cached,
            misses={reason: self.misses.get(reason, 0) + other.misses.get(reason, 0) for reason in reasons},
        )


async def template_misses(session: AsyncSession, since_ms: int) -> list[TemplateMisses]:
    """Per tenant and template, for requests at or after `since_ms` whose worker told what it reused.

    Those that missed most come first. Beyond MAX_TEMPLATES the rest of each tenant is one row, named OTHERS.
    """
    columns = [getattr(LedgerRow, name) for name in MISSES]
    query = (
        select(
            LedgerRow.tenant_id,
            LedgerRow.template,
            func.count(),
            func.sum(LedgerRow.prompt_tokens),
            func.sum(LedgerRow.available_tokens),
            func.sum(LedgerRow.predicted_tokens),
            func.sum(LedgerRow.cached_tokens),
            *map(func.sum, columns),
        )
        .where(
            LedgerRow.tenant_id.is_not(None), LedgerRow.miss_first_seen.is_not(None), LedgerRow.created_at >= since_ms
        )
        .group_by(LedgerRow.tenant_id, LedgerRow.template)
        .order_by(func.sum(LedgerRow.prompt_tokens - LedgerRow.cached_tokens).desc(), LedgerRow.tenant_id)
    )
    found = [_template_misses(*row) for row in (await session.execute(query)).all()]
    rows = {(row.tenant_id, row.template): row for row in found[:MAX_TEMPLATES]}
    for row in found[MAX_TEMPLATES:]:
        key = (row.tenant_id, OTHERS)
        rows[key] = rows[key].with_others(row) if key in rows else replace(row, template=OTHERS)
    return list(rows.values())


def _template_misses(tenant_id: str, template: str | None, *sums: int) -> TemplateMisses:
    requests, prompt, available, predicted, cached, *missed = sums
    misses = {name.removeprefix(MISS): tokens for name, tokens in zip(MISSES, missed, strict=True) if tokens}
    return TemplateMisses(tenant_id, template or "", requests, prompt, available, predicted, cached, misses)


async def find_request(session: AsyncSession, request_id: str, tenant_id: str | None = None) -> LedgerRow | None:
    """One request; None when the ledger has none of that id, or of another tenant than `tenant_id`."""
    query = select(LedgerRow).where(LedgerRow.request_id == request_id)
    if tenant_id is not None:
        query = query.where(LedgerRow.tenant_id == tenant_id)
    return (await session.scalars(query)).one_or_none()
