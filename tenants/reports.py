"""What the ledger says: reuse per tenant over a window, and the latest requests."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from tenants.schema import LedgerRow

MAX_RECENT = 1_000


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
