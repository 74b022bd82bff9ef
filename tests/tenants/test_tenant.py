import pytest

from tenants import Database, find_request
from tenants.tenant import TenantError, create_tenant, disable_tenant, enable_tenant, find_tenant, list_tenants
from tests.tenants.conftest import NOW


async def test_tenants_are_listed_by_id(database: Database) -> None:
    async with database.transaction() as session:
        await create_tenant(session, "globex", "Globex", NOW)
        await create_tenant(session, "acme", "Acme, Inc.", NOW)
    async with database.session() as session:
        assert [(tenant.id, tenant.name) for tenant in await list_tenants(session)] == [
            ("acme", "Acme, Inc."),
            ("globex", "Globex"),
        ]


@pytest.mark.parametrize("slug", ["", "Acme", "a_b", "-a", "a-", "a" * 64, "a:b", "ä", "a\n"])
async def test_an_id_that_is_no_slug_is_refused(database: Database, slug: str) -> None:
    async with database.session() as session:
        with pytest.raises(TenantError, match="lower-case letters"):
            await create_tenant(session, slug, "Name", NOW)


@pytest.mark.parametrize("name", ["", "  ", "x" * 201])
async def test_a_name_is_never_blank_nor_endless(database: Database, name: str) -> None:
    async with database.session() as session:
        with pytest.raises(TenantError, match="name"):
            await create_tenant(session, "acme", name, NOW)


async def test_a_taken_id_is_refused(database: Database, acme: str) -> None:
    async with database.session() as session:
        with pytest.raises(TenantError, match="acme exists already"):
            await create_tenant(session, acme, "Another", NOW)


async def test_a_tenant_stays_disabled_since_the_first_time(database: Database, acme: str) -> None:
    async with database.transaction() as session:
        await disable_tenant(session, acme, NOW)
    async with database.transaction() as session:
        await disable_tenant(session, acme, NOW + 5)
    async with database.session() as session:
        assert (await find_tenant(session, acme)).disabled_at == NOW


async def test_a_tenant_that_is_switched_on_again_is_as_before(database: Database, acme: str) -> None:
    async with database.transaction() as session:
        await disable_tenant(session, acme, NOW)
        await enable_tenant(session, acme)
    async with database.session() as session:
        assert (await find_tenant(session, acme)).disabled_at is None


async def test_an_unknown_tenant_is_an_error_that_says_where_to_look(database: Database) -> None:
    async with database.session() as session:
        with pytest.raises(TenantError, match="no tenant nobody; `saltway tenant list`"):
            await find_tenant(session, "nobody")


async def test_no_tenant_and_no_request_has_a_name_that_cannot_be_stored(database: Database) -> None:
    async with database.session() as session:
        with pytest.raises(TenantError):
            await find_tenant(session, "no\0body")
        assert await find_request(session, "req\0") is None
