from tenants import Database, HitRate, LedgerRow, hit_rates, recent
from tests.tenants.conftest import NOW


async def fill(database: Database, *rows: tuple[str | None, int, int, int]) -> None:
    """Adds requests: tenant, milliseconds after NOW, prompt tokens, cached tokens."""
    async with database.transaction() as session:
        session.add_all(
            LedgerRow(
                request_id=f"r{number}",
                created_at=NOW + at,
                dialect="openai",
                status=200,
                tenant_id=tenant,
                prompt_tokens=prompt,
                available_tokens=prompt,
                predicted_tokens=cached + 1,
                cached_tokens=cached,
                completion_tokens=3,
            )
            for number, (tenant, at, prompt, cached) in enumerate(rows)
        )


async def test_hit_rates_are_sums_over_the_window_per_tenant(database: Database) -> None:
    await fill(
        database,
        ("acme", -1, 999, 999),
        ("globex", 0, 50, 0),
        ("acme", 0, 100, 60),
        ("acme", 9, 100, 80),
        (None, 1, 7, 0),
    )
    async with database.session() as session:
        rates = await hit_rates(session, NOW)
    assert rates == [
        HitRate("acme", requests=2, prompt=200, available=200, predicted=142, cached=140, completion=6),
        HitRate("globex", requests=1, prompt=50, available=50, predicted=1, cached=0, completion=3),
    ]
    assert [rate.ratio for rate in rates] == [0.7, 0.0]
    assert all(type(rate.prompt) is int for rate in rates)


def test_nothing_asked_is_nothing_hit() -> None:
    assert HitRate("acme", 1, 0, 0, 0, 0, 0).ratio == 0.0


async def test_recent_requests_come_newest_first(database: Database) -> None:
    await fill(database, ("acme", 1, 1, 0), ("globex", 3, 1, 0), (None, 2, 1, 0))
    async with database.session() as session:
        assert [row.request_id for row in await recent(session)] == ["r1", "r2", "r0"]
        assert [row.request_id for row in await recent(session, limit=1)] == ["r1"]
        assert [row.request_id for row in await recent(session, tenant_id="acme")] == ["r0"]
        assert await recent(session, limit=-1) == []
