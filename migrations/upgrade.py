"""Runs the history up to its head."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, text

from tenants import Database

# Any fixed number: replicas that start together take this lock in turn, and all but the first find nothing to do.
PG_LOCK = 0x5A17_3A90


async def upgrade(database_url: str) -> None:
    """Brings the database to this version's schema; a database that is there already is left alone.

    raises   ValueError for an unsupported address, SQLAlchemyError or OSError when the database cannot be reached
    """
    async with Database(database_url) as database, database.engine.connect() as connection:
        await connection.run_sync(_upgrade)
        await connection.commit()


def _upgrade(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": PG_LOCK})
    command.upgrade(history(connection), "head")


def history(connection: Connection) -> Config:
    """Alembic's configuration for our history over an open connection."""
    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    return config
