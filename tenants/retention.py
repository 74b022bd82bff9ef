"""Retention policies: how firmly, and for how long, what a tenant sends is kept when its requests do not say."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeAlias, get_args

from sqlalchemy import delete

from tenants.database import Database, is_away, unavailable_when_away
from tenants.lookups import Lookups
from tenants.schema import RetentionRow
from tenants.tenant import find_tenant

FRESH_SECONDS = 2.0
MAX_KNOWN = 100_000
MAX_PRIORITY = 100
MAX_TTL_SECONDS = 7 * 24 * 3600

Part: TypeAlias = Literal["system", "conversation"]
PARTS: tuple[Part, ...] = get_args(Part)


class PolicyError(Exception):
    """A policy out of bounds; `field` names what is wrong, and the text may be shown to an operator."""

    def __init__(self, field: str, text: str) -> None:
        super().__init__(f"{field}: {text}")
        self.field = field
        self.text = text


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """A lease on what each request of a tenant leaves in the caches.

    priority      0 to 100; what is under no lease has 35
    ttl_seconds   from the last use of a block
    part          the system prompt with its tools, or the whole conversation with the answer
    errors        PolicyError
    """

    priority: int
    ttl_seconds: int
    part: Part = "conversation"

    def __post_init__(self) -> None:
        if not 0 <= self.priority <= MAX_PRIORITY:
            raise PolicyError("priority", f"Must be between 0 and {MAX_PRIORITY}.")
        if not 1 <= self.ttl_seconds <= MAX_TTL_SECONDS:
            raise PolicyError("ttl_seconds", f"Must be between 1 and {MAX_TTL_SECONDS}.")
        if self.part not in PARTS:
            raise PolicyError("part", f"Must be one of {', '.join(PARTS)}.")


class PolicyStore:
    """The policy of each tenant, if it has one.

    A change made by another process is seen here within two seconds. While the database is away the last known policy
    stays in use, and there is none where none is known: a lease more or less changes no answer.
    """

    def __init__(self, database: Database, clock: Callable[[], float] = time.monotonic) -> None:
        self._database = database
        self._clock = clock
        self._known: dict[str, tuple[RetentionPolicy | None, float]] = {}
        self._lookups = Lookups[str, RetentionPolicy | None]()

    async def current(self, tenant_id: str) -> RetentionPolicy | None:
        """To be asked for each request: from memory, for two seconds after it was read."""
        now = self._clock()
        policy, read_at = self._known.get(tenant_id, (None, -math.inf))
        if now - read_at < FRESH_SECONDS:
            return policy
        try:
            policy = await self._lookups(tenant_id, partial(self._stored, tenant_id), known=True)  # none will do too
        except Exception as error:
            if not is_away(error):
                raise
            return policy
        return self._learn(tenant_id, policy, now)

    async def _stored(self, tenant_id: str) -> RetentionPolicy | None:
        async with self._database.session() as session:
            row = await session.get(RetentionRow, tenant_id)
        return None if row is None else _policy(row)

    async def find(self, tenant_id: str) -> RetentionPolicy | None:
        """As the database has it. TenantError when there is no such tenant, StoreUnavailableError."""
        with unavailable_when_away():
            async with self._database.session() as session:
                await find_tenant(session, tenant_id)
            policy = await self._stored(tenant_id)
        return self._learn(tenant_id, policy, self._clock())

    async def put(self, tenant_id: str, policy: RetentionPolicy, now: int) -> None:
        """In place of the one before. TenantError when there is no such tenant, StoreUnavailableError."""
        values = {
            "priority": policy.priority,
            "ttl_seconds": policy.ttl_seconds,
            "part": policy.part,
            "changed_at": now,
        }
        row = self._database.upsert(RetentionRow).values(tenant_id=tenant_id, **values)
        with unavailable_when_away():
            async with self._database.transaction() as session:
                await find_tenant(session, tenant_id)
                await session.execute(row.on_conflict_do_update(index_elements=[RetentionRow.tenant_id], set_=values))
        self._learn(tenant_id, policy, self._clock())

    async def clear(self, tenant_id: str) -> None:
        """From now on none. TenantError when there is no such tenant, StoreUnavailableError."""
        with unavailable_when_away():
            async with self._database.transaction() as session:
                await find_tenant(session, tenant_id)
                await session.execute(delete(RetentionRow).where(RetentionRow.tenant_id == tenant_id))
        self._learn(tenant_id, None, self._clock())

    def _learn(self, tenant_id: str, policy: RetentionPolicy | None, now: float) -> RetentionPolicy | None:
        if len(self._known) >= MAX_KNOWN:
            self._known.clear()
        self._known[tenant_id] = policy, now
        return policy


def _policy(row: RetentionRow) -> RetentionPolicy:
    part: Part = "system" if row.part == "system" else "conversation"
    return RetentionPolicy(row.priority, row.ttl_seconds, part)
