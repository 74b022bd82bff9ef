import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from sqlalchemy import func, select

from tenants import Database, Ledger, LedgerRow
from tests.tenants.away import MovableDatabase
from tests.tenants.rows import row

SOON = (0.001, 0.002)


@pytest.fixture
async def movable(database: Database) -> AsyncIterator[MovableDatabase]:
    async with MovableDatabase(database) as movable:
        yield movable


async def until(condition: Callable[[], bool]) -> None:
    # The ledger announces nothing: its counters are what is watched.
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.001)


async def stored(database: Database) -> list[LedgerRow]:
    async with database.session() as session:
        return list(await session.scalars(select(LedgerRow).order_by(LedgerRow.request_id)))


async def test_a_row_comes_back_as_it_went_in(database: Database) -> None:
    full = row(
        "r1",
        tenant_id="acme",
        key_id="k",
        model="m",
        worker_id="w0",
        finish_reason="stop",
        error_code="none",
        streamed=True,
        prompt_tokens=100,
        cached_tokens=48,
        predicted_tokens=64,
        available_tokens=80,
        completion_tokens=7,
        placement_mode="events",
        placement_reason="cheapest",
        queue_ms=0.5,
        ttft_ms=12.25,
        duration_ms=99.5,
        overhead_ms=0.75,
    )
    ledger = Ledger(database)
    ledger.append(full)
    assert await ledger.drain() == 0
    assert await stored(database) == [full]


async def test_a_running_ledger_writes_without_being_asked(database: Database) -> None:
    ledger = Ledger(database)
    await ledger.start()
    ledger.append(row("r1"))
    await until(lambda: ledger.pending == 0)
    assert len(await stored(database)) == 1
    assert await ledger.drain() == 0


async def test_a_burst_is_written_in_few_transactions(movable: MovableDatabase) -> None:
    ledger = Ledger(movable)
    for number in range(1_200):
        ledger.append(row(number))
    assert await ledger.drain() == 0
    assert ledger.written == 1_200
    assert movable.transactions == 3
    async with movable.session() as session:
        assert await session.scalar(select(func.count()).select_from(LedgerRow)) == 1_200


async def test_a_repeated_request_id_is_one_row(database: Database) -> None:
    ledger = Ledger(database)
    ledger.append(row("r1", prompt_tokens=5))
    ledger.append(row("r1", prompt_tokens=6))
    assert await ledger.drain() == 0
    again = Ledger(database)
    again.append(row("r1", prompt_tokens=7))
    assert await again.drain() == 0
    assert [kept.prompt_tokens for kept in await stored(database)] == [5]


async def test_rows_wait_while_the_database_is_away(movable: MovableDatabase) -> None:
    ledger = Ledger(movable, retry_seconds=SOON)
    await ledger.start()
    movable.away = True
    for number in range(10):
        ledger.append(row(number))
    await until(lambda: movable.transactions >= 4)
    assert ledger.pending == 10
    movable.away = False
    assert await ledger.drain() == 0
    assert len(await stored(movable)) == 10


async def test_rows_that_cannot_be_written_at_shutdown_are_taken_in_at_the_next_start(
    movable: MovableDatabase, tmp_path: Path
) -> None:
    spill = tmp_path / "ledger.spill"
    movable.away = True
    for turn in range(2):  # two shutdowns in a row without the database must not lose the first one's rows
        ledger = Ledger(movable, spill, retry_seconds=SOON)
        await ledger.start()
        ledger.append(row(f"turn-{turn}"))
        assert await ledger.drain(timeout_s=0.05) == turn + 1
    movable.away = False
    last = Ledger(movable, spill)
    await last.start()
    assert await last.drain() == 0
    assert [kept.request_id for kept in await stored(movable)] == ["turn-0", "turn-1"]
    assert not spill.exists()


async def test_rows_that_can_be_kept_nowhere_are_counted_in_the_log(
    movable: MovableDatabase, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "no-folder").touch()
    ledger = Ledger(movable, tmp_path / "no-folder" / "ledger.spill", retry_seconds=SOON)
    movable.away = True
    ledger.append(row("r1"))
    assert await ledger.drain(timeout_s=0.05) == 1
    lost = [record for record in caplog.records if record.message == "ledger rows are lost"]
    assert [record.__dict__["rows"] for record in lost] == [1]


async def test_one_row_that_the_database_refuses_does_not_hold_up_the_others(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = Ledger(database)
    for number in range(5):
        ledger.append(row(number, prompt_tokens=[] if number == 2 else 1))
    assert await ledger.drain() == 0
    assert [kept.request_id for kept in await stored(database)] == ["0", "1", "3", "4"]
    assert (ledger.written, ledger.rejected) == (4, 1)
    assert [record.__dict__["request_id"] for record in caplog.records] == ["2"]


async def test_text_that_no_database_can_hold_is_still_a_row(database: Database) -> None:
    ledger = Ledger(database)
    ledger.append(row("r1", model="a\0b\ud800c"))
    assert await ledger.drain() == 0
    assert [kept.model for kept in await stored(database)] == ["a\ufffdb?c"]


async def test_draining_an_idle_ledger_returns_at_once(database: Database) -> None:
    ledger = Ledger(database)
    await ledger.start()
    assert await ledger.drain() == 0
