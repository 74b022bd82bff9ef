import pytest

from tenants import Database, SaltStore, StoreUnavailableError
from tests.tenants.away import MovableDatabase
from tests.tenants.conftest import NOW


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


async def test_a_scope_starts_at_zero_and_rotates_one_by_one_alone(database: Database) -> None:
    salts = SaltStore(database)
    assert await salts.current("tenant:acme") == 0
    assert await salts.rotate("tenant:acme", NOW) == 1
    assert await salts.rotate("tenant:acme", NOW) == 2
    assert await salts.current("tenant:acme") == 2
    assert await salts.current("tenant:globex") == 0


async def test_another_process_sees_a_rotation_within_two_seconds(database: Database) -> None:
    clock = Clock()
    here, there = SaltStore(database, clock), SaltStore(database)
    assert await here.current("public") == 0
    await there.rotate("public", NOW)
    clock.now += 1.9
    assert await here.current("public") == 0
    clock.now += 0.1
    assert await here.current("public") == 1


@pytest.mark.parametrize("trouble", ["away", "silent"])
async def test_while_the_database_is_away_or_says_nothing_the_last_known_epoch_stays(
    database: Database, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    monkeypatch.setattr("tenants.lookups.BRIEF_SECONDS", 0.05)
    monkeypatch.setattr("tenants.lookups.PATIENCE_SECONDS", 0.1)
    clock = Clock()
    async with MovableDatabase(database) as movable:
        salts = SaltStore(movable, clock)
        await salts.rotate("tenant:acme", NOW)
        setattr(movable, trouble, True)
        clock.now += 1_000
        assert await salts.current("tenant:acme") == 1
        with pytest.raises(StoreUnavailableError):
            await salts.current("tenant:globex")
