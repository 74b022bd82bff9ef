"""What the ledger says: reuse per tenant over a window, why the rest was missed, and single requests."""

from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from tenants.schema import MISS, MISSES, LedgerRow

MAX_GROUPS = 100
GROUPS = {
    "template": ("tenant_id", "template"),
    "tenant": ("tenant_id",),
    "model": ("model",),
    "worker": ("worker_id",),
}
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


@dataclass(frozen=True, slots=True)
class MissSums:
    """Sums over the requests of one group; tokens.

    group    its values, as in GROUPS: a tenant and a template, for example; "" for one that is not known
    misses   by reason, those that are not 0; they add up to prompt - cached
    """

    group: tuple[str, ...]
    requests: int
    prompt: int
    available: int
    predicted: int
    cached: int
    misses: dict[str, int]

    def with_others(self, other: "MissSums") -> "MissSums":
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


async def misses_by(session: AsyncSession, by: str, since_ms: int) -> list[MissSums]:
    """Why tokens were computed, by a key of GROUPS, for requests at or after `since_ms` that a worker has begun.

    Groups that missed most come first. Beyond MAX_GROUPS the rest is one row for each of what they are divisions of
    (a template is one of its tenant), its last value OTHERS.
    """
    columns = [getattr(LedgerRow, name) for name in GROUPS[by]]
    query = (
        select(
            *columns,
            func.count(),
            func.sum(LedgerRow.prompt_tokens),
            func.sum(LedgerRow.available_tokens),
            func.sum(LedgerRow.predicted_tokens),
            func.sum(LedgerRow.cached_tokens),
            *(func.sum(getattr(LedgerRow, name)) for name in MISSES),
        )
        .where(LedgerRow.miss_first_seen.is_not(None), LedgerRow.created_at >= since_ms)
        .group_by(*columns)
        .order_by(func.sum(LedgerRow.prompt_tokens - LedgerRow.cached_tokens).desc(), *columns)
    )
    found = [_sums(len(columns), *row) for row in (await session.execute(query)).all()]
    rows = {row.group: row for row in found[:MAX_GROUPS]}
    for row in found[MAX_GROUPS:]:
        group = (*row.group[:-1], OTHERS)
        rows[group] = rows[group].with_others(row) if group in rows else replace(row, group=group)
    return list(rows.values())


def _sums(columns: int, *row: Any) -> MissSums:
    group = tuple(value or "" for value in row[:columns])
    requests, prompt, available, predicted, cached, *missed = row[columns:]
    misses = {name.removeprefix(MISS): tokens for name, tokens in zip(MISSES, missed, strict=True) if tokens}
    return MissSums(group, requests, prompt, available, predicted, cached, misses)


async def find_request(session: AsyncSession, request_id: str, tenant_id: str | None = None) -> LedgerRow | None:
    """One request; None when the ledger has none of that id, or of another tenant than `tenant_id`."""
    if "\0" in request_id:  # which PostgreSQL takes in no text, not even to compare
        return None
    query = select(LedgerRow).where(LedgerRow.request_id == request_id)
    if tenant_id is not None:
        query = query.where(LedgerRow.tenant_id == tenant_id)
    return (await session.scalars(query)).one_or_none()
