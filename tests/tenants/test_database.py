import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from tenants import ApiKey, Database
from tenants.database import async_url, is_away
from tests.tenants.conftest import NOW
from tests.tenants.postgres import empty_database, wire_to


@pytest.mark.parametrize(
    ("given", "driver"),
    [
        ("sqlite:///x.db", "sqlite+aiosqlite"),
        ("sqlite+pysqlite:///x.db", "sqlite+aiosqlite"),
        ("postgres://u@h/n", "postgresql+asyncpg"),
        ("postgresql://u@h/n", "postgresql+asyncpg"),
    ],
)
def test_an_address_gets_its_async_driver(given: str, driver: str) -> None:
    assert async_url(given).drivername == driver


def test_a_postgresql_address_may_say_what_libpq_takes_and_the_driver_knows() -> None:
    url = async_url("postgresql://u:hunter2@h/n?sslmode=require&target_session_attrs=read-write")
    assert url.query == {"ssl": "require", "target_session_attrs": "read-write"}
    with pytest.raises(ValueError, match="the parameter connect_timeout is not supported") as caught:
        async_url("postgresql://u:hunter2@h/n?connect_timeout=5")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("url", ["mysql://root:hunter2@h/n", "hunter2", ""])
def test_an_address_that_is_refused_is_not_repeated(url: str) -> None:
    with pytest.raises(ValueError) as caught:
        Database(url)
    assert "hunter2" not in str(caught.value)
    assert "sqlite:///FILE" in str(caught.value)


async def test_a_transaction_that_raises_leaves_nothing(database: Database, acme: str) -> None:
    async def change_and_fail() -> None:
        async with database.transaction() as session:
            await session.execute(text("UPDATE tenants SET name = 'changed'"))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        await change_and_fail()
    async with database.session() as session:
        assert (await session.execute(text("SELECT name FROM tenants"))).scalar_one() == "Acme"


async def test_a_key_without_its_tenant_is_refused_by_the_database_itself(database: Database) -> None:
    orphan = ApiKey(id="k", tenant_id="nobody", role="tenant", digest="", name="", created_at=NOW)
    with pytest.raises(IntegrityError) as caught:
        async with database.transaction() as session:
            session.add(orphan)
    assert not is_away(caught.value)


async def test_an_administrators_key_of_a_tenant_is_refused_by_the_database_itself(
    database: Database, acme: str
) -> None:
    with pytest.raises(IntegrityError):
        async with database.transaction() as session:
            session.add(ApiKey(id="k", tenant_id=acme, role="admin", digest="", name="", created_at=NOW))


async def test_a_database_nobody_listens_at_is_away() -> None:
    async with Database("postgresql://nobody@127.0.0.1:1/none") as database:
        with pytest.raises(OSError) as caught:
            async with database.session() as session:
                await session.execute(text("SELECT 1"))
    assert is_away(caught.value)


async def test_a_database_that_falls_silent_is_away_after_a_bounded_time() -> None:
    async with wire_to(await empty_database()) as wire, Database(wire.url, command_seconds=0.2) as database:
        async with database.session() as session:
            await session.execute(text("SELECT 1"))
        wire.silent = True
        with pytest.raises(TimeoutError) as caught:
            async with database.session() as session:
                await session.execute(text("SELECT 1"))
        assert is_away(caught.value)


async def test_sqlite_lets_readers_in_while_one_writes(tmp_path: object) -> None:
    async with Database(f"sqlite:///{tmp_path}/store.db") as database, database.session() as session:
        assert (await session.execute(text("PRAGMA journal_mode"))).scalar_one() == "wal"
        assert (await session.execute(text("PRAGMA busy_timeout"))).scalar_one() == 5_000
        assert (await session.execute(text("PRAGMA foreign_keys"))).scalar_one() == 1
