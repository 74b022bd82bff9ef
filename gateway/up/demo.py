"""Demo tenants acme and globex, with an administrator's key, and the file in which scripts find them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import update

from gateway.up.home import write_private
from tenants import ApiKey, Database, KeyRejectedError, KeyStore, Tenant
from tenants.keys import mint
from tenants.tenant import create_tenant

NAME = "demo"
LINE = re.compile(r"([A-Z_]+)=(\S+)")


@dataclass(frozen=True, slots=True)
class Access:
    """One key of the demo: the variable it is kept in, and the tenant it opens (None: administrator)."""

    variable: str
    tenant_id: str | None


ACCESS = (
    Access("SALTWAY_ADMIN_KEY", None),
    Access("SALTWAY_KEY_ACME", "acme"),
    Access("SALTWAY_KEY_GLOBEX", "globex"),
)


async def ensure_demo(database: Database, file: Path, url: str, now: int) -> Mapping[str, str]:
    """Makes what is missing of the demo; a key that works is kept. Returns the variables, as written to `file`."""
    kept = read_env(file)
    found = {"SALTWAY_URL": url}
    for access in ACCESS:
        key = kept.get(access.variable)
        if key is None or not await _opens(database, key, access, now):
            key = await _renew(database, access, now)
        found[access.variable] = key
    if found != kept:
        write_private(file, "".join(f"{name}={value}\n" for name, value in found.items()))
    return found


def read_env(file: Path) -> dict[str, str]:
    """The variables in a file of `NAME=value` lines; empty when there is no such file."""
    if not file.exists():
        return {}
    return {match[1]: match[2] for line in file.read_text("utf-8").splitlines() if (match := LINE.fullmatch(line))}


async def _opens(database: Database, key: str, access: Access, now: int) -> bool:
    try:
        principal = await KeyStore(database).authenticate(key, now)
    except KeyRejectedError as rejected:
        return rejected.reason == "disabled"  # an operator closed the tenant: another key would open it no better
    return principal.tenant_id == access.tenant_id


async def _renew(database: Database, access: Access, now: int) -> str:
    """A new demo key. Earlier ones are revoked: their only copy is lost, so whoever has one found it."""
    earlier = update(ApiKey).where(ApiKey.name == NAME, ApiKey.revoked_at.is_(None))
    same = ApiKey.tenant_id.is_(None) if access.tenant_id is None else ApiKey.tenant_id == access.tenant_id
    plaintext, row = mint(
        tenant_id=access.tenant_id, name=NAME, now=now, role="admin" if access.tenant_id is None else "tenant"
    )
    async with database.transaction() as session:
        if access.tenant_id is not None and await session.get(Tenant, access.tenant_id) is None:
            await create_tenant(session, access.tenant_id, access.tenant_id.capitalize(), now)
        await session.execute(earlier.where(same).values(revoked_at=now))
        session.add(row)
    return plaintext
