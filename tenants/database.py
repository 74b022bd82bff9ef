"""One door to the durable store: SQLite in a file, or PostgreSQL."""

import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from types import TracebackType
from typing import Any, Self

from sqlalchemy import Insert, event, make_url
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.pool import ConnectionPoolEntry

from tenants.schema import Base

BUSY_TIMEOUT_MS = 5_000
CONNECT_SECONDS = 5.0
COMMAND_SECONDS = 30.0  # of PostgreSQL, which is silent for as long as TCP has hope when a network is cut
DRIVERS = {"sqlite": "sqlite+aiosqlite", "postgresql": "postgresql+asyncpg", "postgres": "postgresql+asyncpg"}
PARAMETERS = {name: name for name in ("host", "port", "passfile", "target_session_attrs", "ssl")} | {"sslmode": "ssl"}

# What a store that is away looks like through both drivers; anything else is our own mistake and is raised as it is.
AWAY = (OperationalError, InterfaceError, PoolTimeoutError, OSError, TimeoutError)


class StoreUnavailableError(Exception):
    """The database cannot be reached now. The text never holds the address, which may carry a password."""


def now_ms() -> int:
    """Milliseconds since the Unix epoch, UTC."""
    return time.time_ns() // 1_000_000


def is_away(error: BaseException) -> bool:
    """Whether trying the same statement again later can succeed."""
    return isinstance(error, AWAY) or (isinstance(error, DBAPIError) and error.connection_invalidated)


@contextmanager
def unavailable_when_away() -> Iterator[None]:
    """StoreUnavailableError for whatever says that the store is away."""
    try:
        yield
    except Exception as error:
        if not is_away(error):
            raise
        raise StoreUnavailableError("The database cannot be reached.") from error


class Database:
    """Connections to one store; safe to share between all tasks of one event loop.

    url               `sqlite:///path/to/file.db` or `postgresql://user@host/name`; the async driver is filled in
    command_seconds   that a command may take before the store counts as away; None for any time, as a migration needs
    raises            ValueError when the address names another kind of database
    """

    def __init__(self, url: str, command_seconds: float | None = COMMAND_SECONDS) -> None:
        self.url: URL = async_url(url)
        bounds = {} if self._is_sqlite else {"timeout": CONNECT_SECONDS, "command_timeout": command_seconds}
        self.engine: AsyncEngine = create_async_engine(self.url, pool_pre_ping=not self._is_sqlite, connect_args=bounds)
        if self._is_sqlite:
            event.listen(self.engine.sync_engine, "connect", _set_pragmas)
        self._sessions = async_sessionmaker(self.engine, expire_on_commit=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    def session(self) -> AsyncSession:
        """A session for reading; what it changed is lost unless it commits."""
        return self._sessions()

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncSession]:
        """The same for who has an answer when the store is away: StoreUnavailableError."""
        with unavailable_when_away():
            async with self.session() as session:
                yield session

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncSession]:
        """A session that commits at the end of the block and rolls back when the block raises."""
        async with self._sessions() as session, session.begin():
            yield session

    def upsert(self, table: type[Base]) -> sqlite.Insert | postgresql.Insert:
        """An INSERT that knows ON CONFLICT, in this database's own form."""
        return sqlite.insert(table) if self._is_sqlite else postgresql.insert(table)

    def insert_new(self, table: type[Base]) -> Insert:
        """An INSERT that leaves a row alone whose primary key is already there."""
        return self.upsert(table).on_conflict_do_nothing()

    async def close(self) -> None:
        await self.engine.dispose()

    @property
    def _is_sqlite(self) -> bool:
        return self.url.get_backend_name() == "sqlite"


def async_url(url: str) -> URL:
    """The address with its async driver; ValueError (without the address) when it is no such address."""
    try:
        parsed = make_url(url)
    except Exception:  # SQLAlchemy's own error repeats the address, which may hold a password
        raise ValueError("not a database address; use sqlite:///FILE or postgresql://USER@HOST/NAME") from None
    backend = parsed.drivername.partition("+")[0]
    if backend not in DRIVERS:
        raise ValueError(f"{backend!r} databases are not supported; use sqlite:///FILE or postgresql://USER@HOST/NAME")
    parsed = parsed.set(drivername=DRIVERS[backend])
    return parsed if backend == "sqlite" else parsed.set(query=_for_asyncpg(parsed.query))


def _for_asyncpg(query: Mapping[str, str | tuple[str, ...]]) -> dict[str, str | tuple[str, ...]]:
    """The parameters of a PostgreSQL address by the names that asyncpg has for them; it fails over any other.

    source   libpq's connection URIs, and the signature of asyncpg.connect
    """
    for name in query:
        if name not in PARAMETERS:
            raise ValueError(f"the parameter {name} is not supported in an address; {', '.join(PARAMETERS)} are")
    return {PARAMETERS[name]: value for name, value in query.items()}


def _set_pragmas(connection: DBAPIConnection, _entry: ConnectionPoolEntry) -> None:
    cursor: Any = connection.cursor()
    for pragma in ("journal_mode=WAL", f"busy_timeout={BUSY_TIMEOUT_MS}", "synchronous=NORMAL", "foreign_keys=ON"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()
