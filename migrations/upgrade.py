"""Runs the history up to its head."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy import Connection, text

from tenants import Database

# Any fixed number: replicas that start together take this lock in turn, and all but the first find nothing to do.
PG_LOCK = 0x5A17_3A90


class UpgradeError(Exception):
    """The database is not of this version nor an earlier one; the text may be shown to an operator."""


async def upgrade(database_url: str) -> None:
    """Brings the database to this version's schema; a database that is there already is left alone.

    raises   UpgradeError, ValueError for an unsupported address, SQLAlchemyError or OSError when the database cannot
             be reached
    """
    async with Database(database_url, command_seconds=None) as database, database.engine.connect() as connection:
        await connection.run_sync(_upgrade)
        await connection.commit()


def _upgrade(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": PG_LOCK})
    try:
        command.upgrade(history(connection), "head")
    except CommandError:  # it stands at a step that this history does not have
        raise UpgradeError(
            "The database was made by a later version of Saltway; run that one, or a later one."
        ) from None


def history(connection: Connection) -> Config:
    """Alembic's configuration for our history over an open connection."""
    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    return config
