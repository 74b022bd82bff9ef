from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tenants import Database, Tenant
from tenants.schema import Base
from tests.tenants.postgres import empty_database

NOW = 1_800_000_000_000


@pytest.fixture(params=["sqlite", "postgresql"])
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    """An empty store with our schema, on each database that we support."""
    url = f"sqlite:///{tmp_path}/store.db" if request.param == "sqlite" else await empty_database()
    async with Database(url) as database:
        async with database.engine.begin() as connection:
            await connection.run_sync(Base.metadata.create_all)
        yield database


@pytest.fixture
async def acme(database: Database) -> str:
    async with database.transaction() as session:
        session.add(Tenant(id="acme", name="Acme", created_at=NOW))
    return "acme"
