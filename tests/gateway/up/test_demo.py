from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.up.demo import ensure_demo, read_env
from migrations import upgrade
from tenants import Database, KeyRejectedError, KeyStore
from tenants.keys import revoke_key
from tenants.tenant import disable_tenant

NOW = 1_800_000_000_000
URL = "http://127.0.0.1:8080"


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    url = f"sqlite:///{tmp_path}/store.db"
    await upgrade(url)
    async with Database(url) as database:
        yield database


async def test_each_variable_opens_what_it_says(database: Database, tmp_path: Path) -> None:
    found = await ensure_demo(database, tmp_path / "demo.env", URL, NOW)
    assert found == read_env(tmp_path / "demo.env")
    assert found["SALTWAY_URL"] == URL
    keys = KeyStore(database)
    opened = {
        name: (await keys.authenticate(key, NOW)).tenant_id for name, key in found.items() if name != "SALTWAY_URL"
    }
    assert opened == {"SALTWAY_ADMIN_KEY": None, "SALTWAY_KEY_ACME": "acme", "SALTWAY_KEY_GLOBEX": "globex"}
    assert (tmp_path / "demo.env").stat().st_mode & 0o777 == 0o600


async def test_keys_that_work_are_kept_at_another_address(database: Database, tmp_path: Path) -> None:
    first = await ensure_demo(database, tmp_path / "demo.env", URL, NOW)
    second = await ensure_demo(database, tmp_path / "demo.env", "http://127.0.0.1:9000", NOW)
    assert second == {**first, "SALTWAY_URL": "http://127.0.0.1:9000"}
    assert read_env(tmp_path / "demo.env") == second


async def test_a_revoked_key_is_replaced_and_the_others_stay(database: Database, tmp_path: Path) -> None:
    first = await ensure_demo(database, tmp_path / "demo.env", URL, NOW)
    async with database.transaction() as session:
        await revoke_key(session, first["SALTWAY_KEY_ACME"][6:18], NOW)
    second = await ensure_demo(database, tmp_path / "demo.env", URL, NOW)
    assert {name for name in first if first[name] != second[name]} == {"SALTWAY_KEY_ACME"}
    assert (await KeyStore(database).authenticate(second["SALTWAY_KEY_ACME"], NOW)).tenant_id == "acme"


async def test_lost_keys_are_made_anew_and_the_lost_ones_revoked(database: Database, tmp_path: Path) -> None:
    lost = await ensure_demo(database, tmp_path / "demo.env", URL, NOW)
    (tmp_path / "demo.env").unlink()
    found = await ensure_demo(database, tmp_path / "demo.env", URL, NOW)
    for name in ("SALTWAY_ADMIN_KEY", "SALTWAY_KEY_ACME", "SALTWAY_KEY_GLOBEX"):
        await KeyStore(database).authenticate(found[name], NOW)
        with pytest.raises(KeyRejectedError, match="revoked"):
            await KeyStore(database).authenticate(lost[name], NOW)


async def test_a_key_in_the_wrong_variable_is_replaced(database: Database, tmp_path: Path) -> None:
    first = await ensure_demo(database, tmp_path / "demo.env", URL, NOW)
    (tmp_path / "demo.env").write_text(f"SALTWAY_URL={URL}\nSALTWAY_KEY_ACME={first['SALTWAY_KEY_GLOBEX']}\n")
    second = await ensure_demo(database, tmp_path / "demo.env", URL, NOW)
    assert (await KeyStore(database).authenticate(second["SALTWAY_KEY_ACME"], NOW)).tenant_id == "acme"


async def test_a_tenant_that_an_operator_closed_stays_closed(database: Database, tmp_path: Path) -> None:
    first = await ensure_demo(database, tmp_path / "demo.env", URL, NOW)
    async with database.transaction() as session:
        await disable_tenant(session, "acme", NOW)
    assert await ensure_demo(database, tmp_path / "demo.env", URL, NOW) == first
    with pytest.raises(KeyRejectedError, match="disabled"):
        await KeyStore(database).authenticate(first["SALTWAY_KEY_ACME"], NOW)
