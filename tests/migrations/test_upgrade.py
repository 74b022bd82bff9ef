import asyncio
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, inspect

from migrations import upgrade
from migrations.upgrade import history
from tenants import Database
from tenants.schema import Base
from tests.tenants.postgres import empty_database


@pytest.fixture(params=["sqlite", "postgresql"])
async def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/store.db" if request.param == "sqlite" else await empty_database()


def differences(connection: Connection) -> list[object]:
    context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
    return list(compare_metadata(context, Base.metadata))


def constraints(connection: Connection) -> dict[str, object]:
    """What Alembic's comparison leaves out."""
    found = inspect(connection)
    return {
        name: (
            sorted(str(check["name"]) for check in found.get_check_constraints(name)),
            found.get_pk_constraint(name)["name"],
            [key["name"] for key in found.get_foreign_keys(name)],
        )
        for name in Base.metadata.tables
    }


async def test_the_head_of_the_history_is_the_schema(url: str, tmp_path: Path) -> None:
    await upgrade(url)
    async with Database(url) as database, database.engine.connect() as connection:
        assert await connection.run_sync(differences) == []
        migrated = await connection.run_sync(constraints)
    async with Database(f"sqlite:///{tmp_path}/made.db") as database, database.engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
        assert await connection.run_sync(constraints) == migrated


async def test_the_comparison_sees_a_missing_column(url: str) -> None:
    await upgrade(url)
    async with Database(url) as database, database.engine.begin() as connection:
        await connection.exec_driver_sql("ALTER TABLE ledger DROP COLUMN worker_id")
        assert "worker_id" in str(await connection.run_sync(differences))


async def test_upgrading_again_keeps_the_rows(url: str) -> None:
    await upgrade(url)
    async with Database(url) as database:
        async with database.engine.begin() as connection:
            await connection.exec_driver_sql("INSERT INTO tenants (id, name, created_at) VALUES ('acme', 'Acme', 1)")
        await upgrade(url)
        async with database.engine.connect() as connection:
            assert (await connection.exec_driver_sql("SELECT id FROM tenants")).scalar_one() == "acme"


async def test_the_history_can_be_walked_back(url: str) -> None:
    await upgrade(url)
    async with Database(url) as database, database.engine.begin() as connection:
        await connection.run_sync(lambda sync: command.downgrade(history(sync), "base"))
        assert await connection.run_sync(lambda sync: inspect(sync).get_table_names()) == ["alembic_version"]
    await upgrade(url)


async def test_replicas_that_start_together_all_find_the_schema(tmp_path: Path) -> None:
    url = await empty_database()
    await asyncio.gather(*(upgrade(url) for _ in range(4)))
    async with Database(url) as database, database.engine.connect() as connection:
        assert await connection.run_sync(differences) == []


async def test_the_history_is_found_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    await upgrade("sqlite:///here.db")
    assert (tmp_path / "here.db").exists()
