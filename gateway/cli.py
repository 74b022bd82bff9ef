"""The command line: `saltway`, and the same as `python -m gateway`.

Results go to standard output and words about them to standard error, so that a script can take a new key as it is.
Every expected failure is one sentence on standard error and exit code 1.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import click
import msgspec
from sqlalchemy import make_url
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncSession

from cacheplane.identity import Scope
from gateway.explain import report
from gateway.settings import Settings, SettingsError, documentation, load, shown
from gateway.up import UpError, up
from gateway.wording import lines
from migrations import UpgradeError, upgrade
from tenants import (
    PARTS,
    ApiKey,
    Database,
    LedgerRow,
    PolicyError,
    PolicyStore,
    RetentionPolicy,
    SaltStore,
    StoreUnavailableError,
    Tenant,
    TenantError,
    find_request,
    now_ms,
)
from tenants.keys import KeyNotFoundError, list_keys, mint, revoke_key
from tenants.retention import Part
from tenants.tenant import create_tenant, disable_tenant, enable_tenant, find_tenant, list_tenants

T = TypeVar("T")

DAY_MS = 86_400_000
EXPECTED = (
    SettingsError,
    UpError,
    UpgradeError,
    TenantError,
    KeyNotFoundError,
    PolicyError,
    StoreUnavailableError,
)


def main() -> None:
    """Entry of the console script. Leaves the process with the command's exit code."""
    try:
        sys.exit(saltway.main(standalone_mode=False))
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.Abort:
        sys.exit(130)
    except EXPECTED as error:
        click.echo(f"saltway: {error}", err=True)
        sys.exit(1)


@click.group(no_args_is_help=True)
@click.version_option(package_name="saltway")
def saltway() -> None:
    """A multi-tenant agent gateway with KV-cache-aware routing."""


@saltway.command("up")
@click.option("--port", type=int, help="Port of the gateway.")
@click.option("--workers", type=int, help="Number of workers.")
@click.option("--model", help="A GGUF file, a Hugging Face folder, or smollm2, the packaged model.")
@click.option("--home", type=click.Path(file_okay=False), help="Folder of all state.")
def up_command(port: int | None, workers: int | None, model: str | None, home: str | None) -> int:
    """Start everything on this machine; Ctrl-C stops it."""
    settings = load({"port": port, "workers": workers, "model": model, "home": home})
    return up(settings, lambda text: click.echo(f"saltway: {text}"))


@saltway.command("serve")
def serve_command() -> int:
    """Run the gateway alone, in front of the workers in SALTWAY_WORKER_URLS."""
    from gateway.app import serve  # only this command needs a server, and takes its time to import

    settings = load()
    if not settings.worker_urls:
        raise click.UsageError(
            "It needs workers: name them in SALTWAY_WORKER_URLS, or run `saltway up`, which starts some."
        )
    _in_database(settings, _nothing)
    return serve(settings)


@saltway.group("tenant")
def tenant_group() -> None:
    """Make, list and switch tenants."""


@tenant_group.command("create")
@click.argument("tenant_id", metavar="ID")
@click.option("--name", help="Name for people; the id by default.")
def tenant_create(tenant_id: str, name: str | None) -> None:
    """Make the tenant ID."""

    async def create(database: Database) -> None:
        async with database.transaction() as session:
            await create_tenant(session, tenant_id, tenant_id if name is None else name, now_ms())

    _in_database(load(), create)
    click.echo(f"Tenant {tenant_id} is made; give it a key with `saltway key create {tenant_id}`.", err=True)


@tenant_group.command("list")
def tenant_list() -> None:
    """List all tenants."""

    async def rows(database: Database) -> list[tuple[str, ...]]:
        async with database.session() as session:
            found = await list_tenants(session)
        return [(tenant.id, tenant.name, _day(tenant.created_at), _day(tenant.disabled_at)) for tenant in found]

    _table(("ID", "NAME", "CREATED", "DISABLED"), _in_database(load(), rows))


@tenant_group.command("disable")
@click.argument("tenant_id", metavar="ID")
def tenant_disable(tenant_id: str) -> None:
    """Refuse every key of the tenant ID; running gateways do within two seconds."""
    _in_database(
        load(), lambda database: _switched(database, lambda session: disable_tenant(session, tenant_id, now_ms()))
    )
    click.echo(f"Tenant {tenant_id} is switched off.", err=True)


@tenant_group.command("enable")
@click.argument("tenant_id", metavar="ID")
def tenant_enable(tenant_id: str) -> None:
    """Take the keys of the tenant ID again."""
    _in_database(load(), lambda database: _switched(database, lambda session: enable_tenant(session, tenant_id)))
    click.echo(f"Tenant {tenant_id} is switched on.", err=True)


@saltway.group("key")
def key_group() -> None:
    """Make, list and revoke API keys."""


@key_group.command("create")
@click.argument("tenant_id", metavar="[TENANT]", required=False)
@click.option("--admin", is_flag=True, help="An administrator's key, which belongs to no tenant.")
@click.option("--name", default="key", show_default=True, help="What the key is for.")
@click.option("--expires-days", type=click.IntRange(1, 36_500), help="Days until it expires; never by default.")
def key_create(tenant_id: str | None, admin: bool, name: str, expires_days: int | None) -> None:
    """Make a key for TENANT, or with --admin one for administrators. It is shown this once."""
    if admin == (tenant_id is not None):
        raise click.UsageError("Give either a tenant or --admin.")
    now = now_ms()
    expires_at = None if expires_days is None else now + expires_days * DAY_MS
    plaintext, key = mint(
        tenant_id=tenant_id, name=name, now=now, role="admin" if admin else "tenant", expires_at=expires_at
    )

    async def store(database: Database) -> None:
        async with database.transaction() as session:
            if tenant_id is not None:
                await find_tenant(session, tenant_id)
            session.add(key)

    _in_database(load(), store)
    click.echo(plaintext)
    click.echo(f"Key {key.id} is made; keep it now, it is not shown again.", err=True)


@key_group.command("list")
@click.argument("tenant_id", metavar="[TENANT]", required=False)
def key_list(tenant_id: str | None) -> None:
    """List all keys, or those of TENANT."""

    async def rows(database: Database) -> list[tuple[str, ...]]:
        async with database.session() as session:
            if tenant_id is not None:
                await find_tenant(session, tenant_id)
            return [_key_row(key) for key in await list_keys(session, tenant_id)]

    _table(("ID", "TENANT", "NAME", "CREATED", "EXPIRES", "REVOKED", "LAST USED"), _in_database(load(), rows))


@key_group.command("revoke")
@click.argument("key_id", metavar="ID")
def key_revoke(key_id: str) -> None:
    """Revoke the key ID; running gateways refuse it within two seconds."""

    async def revoke(database: Database) -> None:
        async with database.transaction() as session:
            await revoke_key(session, key_id, now_ms())

    _in_database(load(), revoke)
    click.echo(f"Key {key_id} is revoked.", err=True)


@saltway.group("salt")
def salt_group() -> None:
    """Rotate cache salts."""


@salt_group.command("rotate")
@click.argument("scope")
def salt_rotate(scope: str) -> None:
    """Make every block cached for SCOPE unreachable: tenant:ID, group:ID or public."""
    try:
        parsed = Scope.parse(scope)
    except ValueError:
        raise click.UsageError("A scope is tenant:ID, group:ID or public.") from None

    async def rotate(database: Database) -> int:
        if parsed.kind == "tenant":
            async with database.session() as session:
                await find_tenant(session, parsed.id)  # a misspelt tenant must not look rotated
        return await SaltStore(database).rotate(str(parsed), now_ms())

    click.echo(_in_database(load(), rotate))


@saltway.group("retention")
def retention_group() -> None:
    """Say what is kept of a tenant's requests that do not say themselves."""


@retention_group.command("set")
@click.argument("tenant_id", metavar="TENANT")
@click.option("--priority", type=int, required=True, help="0 to 100; what is not under lease has 35.")
@click.option("--ttl-seconds", type=int, required=True, help="From the last use of a block; at most seven days.")
@click.option("--part", type=click.Choice(PARTS), default="conversation", show_default=True, help="What is kept.")
def retention_set(tenant_id: str, priority: int, ttl_seconds: int, part: Part) -> None:
    """Keep what TENANT sends; running gateways do within two seconds."""
    policy = RetentionPolicy(priority, ttl_seconds, part)
    _in_database(load(), lambda database: PolicyStore(database).put(tenant_id, policy, now_ms()))
    click.echo(f"What tenant {tenant_id} sends is kept.", err=True)


@retention_group.command("show")
@click.argument("tenant_id", metavar="TENANT")
def retention_show(tenant_id: str) -> None:
    """Print the policy of TENANT."""
    policy = _in_database(load(), lambda database: PolicyStore(database).find(tenant_id))
    rows = [] if policy is None else [(str(policy.priority), str(policy.ttl_seconds), policy.part)]
    _table(("PRIORITY", "TTL SECONDS", "PART"), rows)


@retention_group.command("clear")
@click.argument("tenant_id", metavar="TENANT")
def retention_clear(tenant_id: str) -> None:
    """Keep nothing of TENANT longer than the rest; running gateways stop within two seconds."""
    _in_database(load(), lambda database: PolicyStore(database).clear(tenant_id))
    click.echo(f"Tenant {tenant_id} has no policy.", err=True)


@saltway.command("explain")
@click.argument("request_id")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def explain_command(request_id: str, as_json: bool) -> None:
    """Say where each prompt token of a request went, and why."""

    async def find(database: Database) -> LedgerRow | None:
        async with database.session() as session:
            return await find_request(session, request_id)

    row = _in_database(load(), find)
    if row is None:
        raise click.ClickException(
            f"The ledger has no request {request_id}; it is there a second after the request's end."
        )
    told = report(row)
    click.echo(msgspec.json.format(msgspec.json.encode(told)).decode() if as_json else "\n".join(lines(told)))


@saltway.group("config")
def config_group() -> None:
    """Show and document the settings."""


@config_group.command("show")
def config_show() -> None:
    """Print the settings in force, secrets masked."""
    click.echo(shown(load()))


@config_group.command("docs")
@click.option("--write", type=click.Path(dir_okay=False), help="Write this file in place of printing.")
def config_docs(write: str | None) -> None:
    """Print the description of every option, as Markdown."""
    if write is None:
        click.echo(documentation(), nl=False)
        return
    try:
        Path(write).write_text(documentation(), "utf-8")
    except OSError as error:
        raise click.ClickException(f"Cannot write {write} ({error.strerror}); choose another file.") from None


async def _switched(database: Database, switch: Callable[[AsyncSession], Awaitable[Tenant]]) -> None:
    async with database.transaction() as session:
        await switch(session)


def _in_database(settings: Settings, work: Callable[[Database], Awaitable[T]]) -> T:
    """Runs `work` on the database, its schema made current first. SettingsError when it cannot be reached."""

    async def run() -> T:
        await upgrade(settings.database)
        async with Database(settings.database) as database:
            return await work(database)

    try:
        _expect_folder(settings)
        return asyncio.run(run())
    except (SQLAlchemyError, OSError) as error:
        # The class alone: a driver's message may hold the address, and with it a password.
        raise SettingsError(
            f"The database cannot be used ({type(error).__name__}); start it, or correct SALTWAY_DATABASE_URL, "
            "or run `saltway up` once to make the home folder."
        ) from None
    except ValueError as error:
        raise SettingsError(f"Option database_url: {error}.") from None


def _expect_folder(settings: Settings) -> None:
    """The folder of a SQLite file must be there. The driver finds out too, but then its thread outlives our loop."""
    url = make_url(settings.database)
    if url.get_backend_name() == "sqlite" and url.database and not Path(url.database).parent.is_dir():
        raise FileNotFoundError(url.database)


async def _nothing(_database: Database) -> None:
    """For commands that only need the schema current."""


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    for row in (head, *rows):
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _key_row(key: ApiKey) -> tuple[str, ...]:
    times = (key.created_at, key.expires_at, key.revoked_at, key.last_used_at)
    return (key.id, key.tenant_id or "(admin)", key.name, *(_day(at) for at in times))


def _day(at: int | None) -> str:
    return "-" if at is None else datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%d %H:%M")
