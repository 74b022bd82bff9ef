import asyncio
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenants import ApiKey, Database, KeyRejectedError, KeyStore, Principal, StoreUnavailableError
from tenants.keys import (
    FORMAT,
    FRESH_MS,
    GRACE_MS,
    TOUCH_MS,
    KeyNotFoundError,
    Role,
    digest,
    list_keys,
    mint,
    revoke_key,
)
from tenants.tenant import disable_tenant
from tests.tenants.away import MovableDatabase
from tests.tenants.conftest import NOW


@pytest.fixture
async def movable(database: Database) -> AsyncIterator[MovableDatabase]:
    async with MovableDatabase(database) as movable:
        yield movable


async def new_key(
    database: Database, tenant_id: str | None = "acme", expires_at: int | None = None
) -> tuple[str, ApiKey]:
    role: Role = "admin" if tenant_id is None else "tenant"
    plaintext, row = mint(tenant_id=tenant_id, name="ci", now=NOW, role=role, expires_at=expires_at)
    async with database.transaction() as session:
        session.add(row)
    return plaintext, row


async def reason(keys: KeyStore, plaintext: str, now: int = NOW) -> str:
    with pytest.raises(KeyRejectedError) as caught:
        await keys.authenticate(plaintext, now)
    return caught.value.reason


def test_a_minted_key_has_the_format_and_the_row_does_not_have_the_secret() -> None:
    plaintext, row = mint(tenant_id="acme", name="ci", now=NOW)
    match = FORMAT.fullmatch(plaintext)
    assert match is not None
    assert match[1] == row.id
    assert row.digest == digest(plaintext)
    assert plaintext[-43:] not in repr(row)
    assert row.digest not in repr(row)


def test_no_two_minted_keys_are_alike() -> None:
    assert len({mint(tenant_id="acme", name="ci", now=NOW)[0] for _ in range(100)}) == 100


@pytest.mark.parametrize(("tenant_id", "role"), [("acme", "admin"), (None, "tenant")])
def test_only_an_administrators_key_has_no_tenant(tenant_id: str | None, role: str) -> None:
    with pytest.raises(ValueError, match="names"):
        mint(tenant_id=tenant_id, name="ci", now=NOW, role="admin" if role == "admin" else "tenant")


async def test_a_key_opens_its_own_tenant(database: Database, acme: str) -> None:
    plaintext, row = await new_key(database)
    assert await KeyStore(database).authenticate(plaintext, NOW) == Principal(acme, row.id, "tenant")


async def test_an_administrators_key_opens_no_tenant(database: Database) -> None:
    plaintext, row = await new_key(database, tenant_id=None)
    assert await KeyStore(database).authenticate(plaintext, NOW) == Principal(None, row.id, "admin")


async def test_a_right_id_with_a_wrong_secret_is_unknown(database: Database, acme: str) -> None:
    plaintext, _ = await new_key(database)
    last = "A" if plaintext[-1] != "A" else "B"
    keys = KeyStore(database)
    assert await reason(keys, plaintext[:-1] + last) == "unknown"
    assert (await keys.authenticate(plaintext, NOW)).tenant_id == acme
    assert await reason(keys, plaintext[:-1] + last) == "unknown"


@given(st.text(max_size=100))
def test_no_text_but_a_key_is_looked_up(text: str) -> None:
    async def ask() -> None:
        async with Database("sqlite:///:memory:") as nothing:  # has no tables: a query would fail
            assert await reason(KeyStore(nothing), text) == "unknown"

    if FORMAT.fullmatch(text) is None:
        asyncio.run(ask())


async def test_an_expired_key_is_refused_to_the_millisecond_even_when_cached(database: Database, acme: str) -> None:
    plaintext, _ = await new_key(database, expires_at=NOW + 10)
    keys = KeyStore(database)
    assert (await keys.authenticate(plaintext, NOW + 9)).tenant_id == acme
    assert await reason(keys, plaintext, NOW + 10) == "expired"
    assert await reason(KeyStore(database), plaintext, NOW + 10) == "expired"


async def test_a_revocation_bites_within_two_seconds(database: Database, acme: str) -> None:
    plaintext, row = await new_key(database)
    keys = KeyStore(database)
    await keys.authenticate(plaintext, NOW)
    async with database.transaction() as session:
        await revoke_key(session, row.id, NOW + 1)
    assert (await keys.authenticate(plaintext, NOW + FRESH_MS - 1)).tenant_id == acme
    assert await reason(keys, plaintext, NOW + FRESH_MS) == "revoked"
    assert await reason(keys, plaintext, NOW + 1) == "revoked"  # also when the clock steps back


async def test_the_keys_of_a_disabled_tenant_are_refused(database: Database, acme: str) -> None:
    plaintext, _ = await new_key(database)
    async with database.transaction() as session:
        await disable_tenant(session, acme, NOW)
    assert await reason(KeyStore(database), plaintext) == "disabled"


async def test_a_burst_with_one_key_asks_the_database_once(movable: MovableDatabase, acme: str) -> None:
    plaintext, _ = await new_key(movable)
    keys = KeyStore(movable)
    movable.reads = 0
    await asyncio.gather(*(keys.authenticate(plaintext, NOW) for _ in range(50)))
    await keys.authenticate(plaintext, NOW + FRESH_MS - 1)
    assert movable.reads == 1


async def test_a_caller_who_leaves_does_not_fail_the_others(database: Database, acme: str) -> None:
    plaintext, _ = await new_key(database)
    keys = KeyStore(database)
    leaver = asyncio.create_task(keys.authenticate(plaintext, NOW))
    stayer = asyncio.create_task(keys.authenticate(plaintext, NOW))
    await asyncio.sleep(0)
    leaver.cancel()
    assert (await stayer).tenant_id == acme
    assert leaver.cancelled()


async def test_a_key_seen_good_outlives_the_database_by_a_minute(movable: MovableDatabase, acme: str) -> None:
    known, _ = await new_key(movable)
    unseen, _ = await new_key(movable)
    keys = KeyStore(movable)
    await keys.authenticate(known, NOW)
    movable.away = True
    assert (await keys.authenticate(known, NOW + GRACE_MS)).tenant_id == acme
    with pytest.raises(StoreUnavailableError):
        await keys.authenticate(known, NOW + GRACE_MS + 1)
    with pytest.raises(StoreUnavailableError):
        await keys.authenticate(unseen, NOW)


async def test_a_key_seen_good_outlives_a_database_that_says_nothing(
    movable: MovableDatabase, acme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    known, _ = await new_key(movable)
    unseen, _ = await new_key(movable)
    keys = KeyStore(movable)
    await keys.authenticate(known, NOW)
    movable.silent = True
    monkeypatch.setattr("tenants.lookups.BRIEF_SECONDS", 0.05)
    monkeypatch.setattr("tenants.lookups.PATIENCE_SECONDS", 0.1)
    for later in (FRESH_MS, GRACE_MS):
        assert (await keys.authenticate(known, NOW + later)).tenant_id == acme
    with pytest.raises(StoreUnavailableError):
        await keys.authenticate(unseen, NOW)
    assert movable.reads == 3  # once for each key, however often the one that hangs is asked about


async def test_the_last_use_is_noted_once_a_minute(movable: MovableDatabase, acme: str) -> None:
    plaintext, row = await new_key(movable)
    keys = KeyStore(movable)

    async def used_at(now: int) -> int | None:
        await keys.authenticate(plaintext, now)
        async with movable.session() as session:
            return (await session.get_one(ApiKey, row.id)).last_used_at

    assert await used_at(NOW) == NOW
    assert await used_at(NOW + TOUCH_MS - 1) == NOW
    assert await used_at(NOW + TOUCH_MS - 1 + FRESH_MS) == NOW + TOUCH_MS - 1 + FRESH_MS


async def test_keys_are_listed_for_one_tenant_or_all(database: Database, acme: str) -> None:
    _, first = await new_key(database)
    _, admin = await new_key(database, tenant_id=None)
    async with database.session() as session:
        assert [key.id for key in await list_keys(session, acme)] == [first.id]
        assert {key.id for key in await list_keys(session)} == {first.id, admin.id}


async def test_revoking_twice_keeps_the_first_time(database: Database, acme: str) -> None:
    _, row = await new_key(database)
    for now in (NOW, NOW + 5):
        async with database.transaction() as session:
            assert (await revoke_key(session, row.id, now)).revoked_at == NOW


async def test_revoking_an_unknown_key_says_where_to_look(database: Database) -> None:
    async with database.session() as session:
        with pytest.raises(KeyNotFoundError, match="no key nothing; `saltway key list`"):
            await revoke_key(session, "nothing", NOW)
