"""Tenants: made, listed, switched off and on. Never deleted: the ledger and the cache scopes name them for good."""

import re
from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from tenants.schema import Tenant

SLUG = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
NAME_CHARS = 200


class TenantError(Exception):
    """A tenant cannot be made or found; the text says what to do and may be shown to an operator."""


async def create_tenant(session: AsyncSession, tenant_id: str, name: str, now: int) -> Tenant:
    """Adds a tenant; the caller commits. TenantError when the id is no slug or is taken."""
    if not SLUG.fullmatch(tenant_id):
        raise TenantError("A tenant id is 1 to 63 lower-case letters, digits and inner hyphens, such as acme-2.")
    if not name.strip() or len(name) > NAME_CHARS:
        raise TenantError(f"A tenant's name has 1 to {NAME_CHARS} characters.")
    if await session.get(Tenant, tenant_id) is not None:
        raise TenantError(f"Tenant {tenant_id} exists already; choose another id.")
    tenant = Tenant(id=tenant_id, name=name, created_at=now)
    session.add(tenant)
    await session.flush()
    return tenant


async def find_tenant(session: AsyncSession, tenant_id: str) -> Tenant:
    """TenantError when there is none of that id."""
    tenant = await session.get(Tenant, tenant_id) if SLUG.fullmatch(tenant_id) else None
    if tenant is None:
        raise TenantError(f"There is no tenant {tenant_id}; `saltway tenant list` shows those that exist.")
    return tenant


async def list_tenants(session: AsyncSession) -> Sequence[Tenant]:
    return (await session.scalars(select(Tenant).order_by(Tenant.id))).all()


async def disable_tenant(session: AsyncSession, tenant_id: str, now: int) -> Tenant:
    """Refuses every key of the tenant from now on (within the key cache's two seconds); the caller commits."""
    tenant = await find_tenant(session, tenant_id)
    if tenant.disabled_at is None:
        tenant.disabled_at = now
    return tenant


async def enable_tenant(session: AsyncSession, tenant_id: str) -> Tenant:
    """Its keys are good again, but for those that were revoked or have expired; the caller commits."""
    tenant = await find_tenant(session, tenant_id)
    tenant.disabled_at = None
    return tenant
