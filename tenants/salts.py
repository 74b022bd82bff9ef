"""Salt epochs: rotating one makes every block cached under the old salt unreachable, without touching a worker."""

import time
from collections.abc import Callable
from functools import partial

from sqlalchemy import select

from tenants.database import Database, StoreUnavailableError, is_away
from tenants.lookups import Lookups
from tenants.schema import SaltEpoch

FRESH_SECONDS = 2.0
MAX_SCOPES = 100_000


class SaltStore:
    """The epoch of each cache scope (`tenant:acme`, `group:research`, `public`).

    A rotation made by another process is seen here within two seconds. While the database is away the last known
    epoch stays in use: nobody can rotate then either.
    """

    def __init__(self, database: Database, clock: Callable[[], float] = time.monotonic) -> None:
        self._database = database
        self._clock = clock
        self._known: dict[str, tuple[int, float]] = {}
        self._lookups = Lookups[str, int]()

    async def current(self, scope: str) -> int:
        """The epoch to derive a salt with; 0 for a scope never rotated. StoreUnavailableError if unknown and away."""
        now = self._clock()
        known = self._known.get(scope)
        if known is not None and now - known[1] < FRESH_SECONDS:
            return known[0]
        try:
            epoch = await self._lookups(scope, partial(self._stored, scope), known=known is not None)
        except Exception as error:
            if not is_away(error):
                raise
            if known is None:
                raise StoreUnavailableError("The database cannot be reached.") from error
            return known[0]
        return self._learn(scope, epoch, now)

    async def _stored(self, scope: str) -> int:
        async with self._database.session() as session:
            return await session.scalar(select(SaltEpoch.epoch).where(SaltEpoch.scope == scope)) or 0

    async def rotate(self, scope: str, now: int) -> int:
        """Starts the next epoch and returns it; every replica of the gateway ends up on the same one."""
        first = self._database.upsert(SaltEpoch).values(scope=scope, epoch=1, rotated_at=now)
        following = first.on_conflict_do_update(
            index_elements=[SaltEpoch.scope], set_={"epoch": SaltEpoch.epoch + 1, "rotated_at": now}
        ).returning(SaltEpoch.epoch)
        async with self._database.transaction() as session:
            epoch = (await session.execute(following)).scalar_one()
        return self._learn(scope, epoch, self._clock())

    def _learn(self, scope: str, epoch: int, now: float) -> int:
        """Never goes back: a read that was under way while we rotated must not undo it."""
        if len(self._known) >= MAX_SCOPES:
            self._known.clear()
        known = self._known.get(scope, (0, 0.0))[0]
        self._known[scope] = (max(epoch, known), now)
        return max(epoch, known)
