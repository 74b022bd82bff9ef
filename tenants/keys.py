"""API keys: minted once, stored as digests, checked on every request."""

import hashlib
import hmac
import re
import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Literal

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncSession

from tenants.database import Database, StoreUnavailableError, is_away
from tenants.lookups import Lookups
from tenants.schema import ApiKey, Tenant

Role = Literal["tenant", "admin"]
Reason = Literal["unknown", "revoked", "expired", "disabled"]

ID_CHARS = 12
ID_ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"  # no look-alikes: people read ids to each other
SECRET_BYTES = 32
FORMAT = re.compile(r"sk-sw-([a-z0-9]{12})-[A-Za-z0-9_-]{43}")

FRESH_MS = 2_000  # how long a revocation may take to bite
GRACE_MS = 60_000  # how long a key that was good stays good while the database is away
TOUCH_MS = 60_000  # last_used_at is exact to a minute
MAX_CACHED = 10_000

_NOBODY = "0" * 64


class KeyRejectedError(Exception):
    """A key that opens nothing. Carries the reason, never the key."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason: Reason = reason


class KeyNotFoundError(Exception):
    """There is no key of that id; the text may be shown to an operator."""


@dataclass(frozen=True, slots=True)
class Principal:
    """Who a request is for. `tenant_id` is None for an administrator."""

    tenant_id: str | None
    key_id: str
    role: Role


@dataclass(frozen=True, slots=True)
class _Known:
    """A key that was good at `checked_at`."""

    principal: Principal
    expires_at: int | None
    checked_at: int


def digest(plaintext: str) -> str:
    """SHA-256 of the whole key, hex."""
    return hashlib.sha256(plaintext.encode("utf-8", "surrogatepass")).hexdigest()


def mint(
    *, tenant_id: str | None, name: str, now: int, role: Role = "tenant", expires_at: int | None = None
) -> tuple[str, ApiKey]:
    """A new key: the plaintext, to be shown once, and the row to store. `tenant_id` is None just for role admin."""
    if (role == "admin") != (tenant_id is None):
        raise ValueError("a tenant's key names its tenant, and an administrator's key names none")
    key_id = "".join(secrets.choice(ID_ALPHABET) for _ in range(ID_CHARS))
    plaintext = f"sk-sw-{key_id}-{secrets.token_urlsafe(SECRET_BYTES)}"
    row = ApiKey(
        id=key_id,
        tenant_id=tenant_id,
        role=role,
        digest=digest(plaintext),
        name=name,
        created_at=now,
        expires_at=expires_at,
    )
    return plaintext, row


async def list_keys(session: AsyncSession, tenant_id: str | None = None) -> Sequence[ApiKey]:
    """All keys, or one tenant's, oldest first."""
    query = select(ApiKey).order_by(ApiKey.created_at, ApiKey.id)
    if tenant_id is not None:
        query = query.where(ApiKey.tenant_id == tenant_id)
    return (await session.scalars(query)).all()


async def revoke_key(session: AsyncSession, key_id: str, now: int) -> ApiKey:
    """Ends a key for good; the caller commits. Revoking twice keeps the first time. KeyNotFoundError."""
    key = await session.get(ApiKey, key_id)
    if key is None:
        raise KeyNotFoundError(f"There is no key {key_id}; `saltway key list` shows those that exist.")
    if key.revoked_at is None:
        key.revoked_at = now
    return key


class KeyStore:
    """Checks keys, with at most one query for each key every two seconds.

    The cache is keyed on the digest of the *whole* key. (LiteLLM's CVE-2026-35030 cached under the first 20 characters
    of a token, and served one user's identity to another.)
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: dict[str, _Known] = {}
        self._lookups = Lookups[str, _Known]()

    async def authenticate(self, plaintext: str, now: int) -> Principal:
        """Whose key this is.

        now      milliseconds since the Unix epoch
        raises   KeyRejectedError with its reason; StoreUnavailableError when the database is away and the key was
                 not seen good within the last minute
        """
        key_digest = digest(plaintext)
        known = self._known.get(key_digest)
        if known is None or not 0 <= now - known.checked_at < FRESH_MS:
            known = await self._refresh(plaintext, key_digest, known, now)
        if known.expires_at is not None and known.expires_at <= now:
            raise KeyRejectedError("expired")  # within the two seconds in which the database was not asked
        return known.principal

    async def _refresh(self, plaintext: str, key_digest: str, known: _Known | None, now: int) -> _Known:
        match = FORMAT.fullmatch(plaintext)
        if match is None:
            raise KeyRejectedError("unknown")
        try:
            query = partial(self._lookup, match[1], key_digest, now)
            fresh = await self._lookups(key_digest, query, known=known is not None)
        except Exception as error:
            if not is_away(error):
                self._known.pop(key_digest, None)
                raise
            if known is None or now - known.checked_at > GRACE_MS:
                raise StoreUnavailableError("The database cannot be reached.") from error
            return known
        if len(self._known) >= MAX_CACHED:
            self._known.clear()
        self._known[key_digest] = fresh
        return fresh

    async def _lookup(self, key_id: str, key_digest: str, now: int) -> _Known:
        query = select(ApiKey, Tenant.disabled_at).outerjoin(Tenant).where(ApiKey.id == key_id)
        async with self._database.session() as session:
            found = (await session.execute(query)).one_or_none()
        key, disabled_at = found if found is not None else (None, None)
        if not hmac.compare_digest(key.digest if key else _NOBODY, key_digest) or key is None:
            raise KeyRejectedError("unknown")
        if key.revoked_at is not None:
            raise KeyRejectedError("revoked")
        if disabled_at is not None:
            raise KeyRejectedError("disabled")
        if key.expires_at is not None and key.expires_at <= now:
            raise KeyRejectedError("expired")
        if key.last_used_at is None or now - key.last_used_at >= TOUCH_MS:
            await self._touch(key.id, now)
        role: Role = "admin" if key.role == "admin" else "tenant"
        return _Known(Principal(key.tenant_id, key.id, role), key.expires_at, now)

    async def _touch(self, key_id: str, now: int) -> None:
        """Notes the use of a key, at most once a minute. A store that refuses the note does not refuse the request."""
        with suppress(Exception):
            async with self._database.transaction() as session:
                await session.execute(update(ApiKey).where(ApiKey.id == key_id).values(last_used_at=now))
