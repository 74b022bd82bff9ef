from typing import Any

import pytest
from sqlalchemy.exc import IntegrityError

from tenants import (
    Database,
    PolicyError,
    PolicyStore,
    RetentionPolicy,
    RetentionRow,
    StoreUnavailableError,
    TenantError,
)
from tests.tenants.away import MovableDatabase
from tests.tenants.conftest import NOW
from tests.tenants.test_salts import Clock

HOUR = RetentionPolicy(60, 3600)
SYSTEM = RetentionPolicy(80, 86_400, "system")


async def test_a_policy_is_put_replaced_and_cleared(database: Database, acme: str) -> None:
    policies = PolicyStore(database)
    assert await policies.current(acme) is None
    await policies.put(acme, HOUR, NOW)
    assert await policies.current(acme) == await policies.find(acme) == HOUR
    await policies.put(acme, SYSTEM, NOW + 1)
    assert await PolicyStore(database).current(acme) == SYSTEM
    for _ in range(2):
        await policies.clear(acme)
        assert await policies.find(acme) is None
    assert await PolicyStore(database).current(acme) is None


async def test_another_process_sees_a_change_within_two_seconds(database: Database, acme: str) -> None:
    clock = Clock()
    here, there = PolicyStore(database, clock), PolicyStore(database)
    assert await here.current(acme) is None
    await there.put(acme, HOUR, NOW)
    clock.now += 1.9
    assert await here.current(acme) is None
    clock.now += 0.1
    assert await here.current(acme) == HOUR
    await there.clear(acme)
    clock.now += 2
    assert await here.current(acme) is None


async def test_a_policy_is_one_tenants_alone_and_of_one_that_exists(database: Database, acme: str) -> None:
    policies = PolicyStore(database)
    await policies.put(acme, HOUR, NOW)
    assert await policies.current("globex") is None
    for refused in (policies.put("globex", HOUR, NOW), policies.clear("globex"), policies.find("globex")):
        with pytest.raises(TenantError, match="no tenant globex"):
            await refused


async def test_while_the_database_is_away_the_last_known_policy_stays_and_unknown_is_none(
    database: Database, acme: str
) -> None:
    clock = Clock()
    async with MovableDatabase(database) as movable:
        policies = PolicyStore(movable, clock)
        await policies.put(acme, HOUR, NOW)
        movable.away = True
        clock.now += 1_000
        assert await policies.current(acme) == HOUR
        assert await policies.current("globex") is None
        for asked in (policies.put(acme, HOUR, NOW), policies.clear(acme), policies.find(acme)):
            with pytest.raises(StoreUnavailableError):
                await asked


async def test_a_database_that_says_nothing_holds_up_no_request_for_its_policy(
    database: Database, acme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenants.lookups.BRIEF_SECONDS", 0.05)
    clock = Clock()
    async with MovableDatabase(database) as movable:
        policies = PolicyStore(movable, clock)
        await policies.put(acme, HOUR, NOW)
        movable.silent = True
        clock.now += 1_000
        assert await policies.current(acme) == HOUR
        assert await policies.current("globex") is None


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("priority", (-1, 3600)),
        ("priority", (101, 3600)),
        ("ttl_seconds", (50, 0)),
        ("ttl_seconds", (50, 604_801)),
        ("part", (50, 3600, "tools")),
    ],
)
async def test_a_policy_out_of_bounds_is_refused_by_name_and_by_the_database(
    database: Database, acme: str, field: str, values: tuple[Any, ...]
) -> None:
    with pytest.raises(PolicyError) as refused:
        RetentionPolicy(*values)
    assert refused.value.field == field
    columns = dict(zip(("priority", "ttl_seconds", "part"), (*values, "system"), strict=False))
    with pytest.raises(IntegrityError):
        async with database.transaction() as session:
            session.add(RetentionRow(tenant_id=acme, changed_at=NOW, **columns))
