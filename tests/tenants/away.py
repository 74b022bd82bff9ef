"""A store that can be made to look away, as both drivers show it, or to fall silent."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Self

from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncSession

from tenants import Database


class _SilentSession(AsyncSession):
    """Never answered: its server stands still, or the network hides it."""

    async def __aenter__(self) -> Self:
        await asyncio.Event().wait()
        return self


class MovableDatabase(Database):
    """The same store through connections that fail while `away` is set, and to which nothing is said while `silent`
    is. Counts the uses of each kind."""

    def __init__(self, database: Database) -> None:
        super().__init__(database.url.render_as_string(hide_password=False))
        self.away = False
        self.silent = False
        self.reads = 0
        self.transactions = 0

    def session(self) -> AsyncSession:
        self.reads += 1
        self._fail_if_away()
        return _SilentSession() if self.silent else super().session()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncSession]:
        self.transactions += 1
        self._fail_if_away()
        async with super().transaction() as session:
            yield session

    def _fail_if_away(self) -> None:
        if self.away:
            raise OperationalError("SELECT 1", {}, ConnectionRefusedError())
