"""Migrations: how a database of any earlier version becomes one of this version.

owns            the Alembic history (`versions/`, one file a step, numbered) and the door that runs it
does not own    the schema itself (`tenants.schema`), which the history must add up to
front door      upgrade, UpgradeError

There is no alembic.ini: the history is found beside this file, from any folder and from an installed package.
A new step is a new numbered file; the test of this room fails until head and schema agree on both databases.
"""

from migrations.upgrade import UpgradeError, upgrade

__all__ = ["UpgradeError", "upgrade"]
