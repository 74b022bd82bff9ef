"""Alembic's entry: runs the chosen steps over the connection that `migrations.upgrade` hands in."""

from alembic import context
from sqlalchemy import Connection

from tenants.schema import Base


def run(connection: Connection) -> None:
    # SQLite cannot alter most of a table in place; batch mode copies it.
    context.configure(
        connection=connection, target_metadata=Base.metadata, render_as_batch=connection.dialect.name == "sqlite"
    )
    with context.begin_transaction():
        context.run_migrations()


run(context.config.attributes["connection"])
