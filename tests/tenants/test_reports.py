from typing import Any

from tenants import Database, HitRate, LedgerRow, find_request, hit_rates, misses_by
from tenants.reports import MAX_GROUPS, OTHERS
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
    assert all(type(rate.prompt) is int for rate in rates)


def missed(number: int, tenant: str, template: str, *, at: int = 0, **reasons: int) -> LedgerRow:
    """A request of 100 prompt tokens, of which those were computed for which there is a reason."""
    known = {"first_seen": 0, "below_block": 0} | reasons
    columns: dict[str, Any] = {f"miss_{reason}": tokens for reason, tokens in known.items()}
    return LedgerRow(
        request_id=f"m{number}",
        created_at=NOW + at,
        dialect="openai",
        status=200,
        tenant_id=tenant,
        template=template,
        prompt_tokens=100,
        available_tokens=60,
        predicted_tokens=50,
        cached_tokens=100 - sum(reasons.values()),
        **columns,
    )


async def test_misses_are_summed_by_tenant_and_template_the_worst_first(database: Database) -> None:
    async with database.transaction() as session:
        session.add_all(
            [
                missed(1, "acme", "t1", first_seen=20, below_block=4),
                missed(2, "acme", "t1", evicted=50, below_block=6),
                missed(3, "acme", "t2", parity=10),
                missed(4, "globex", "t1", first_seen=30),
                missed(5, "acme", "t1", at=-1, first_seen=99),
                LedgerRow(request_id="refused", created_at=NOW, dialect="openai", status=400, tenant_id="acme"),
            ]
        )
    async with database.session() as session:
        rows = await misses_by(session, "template", NOW)
        tenants = await misses_by(session, "tenant", NOW)
    assert [(row.group, row.misses) for row in rows] == [
        (("acme", "t1"), {"evicted": 50, "first_seen": 20, "below_block": 10}),
        (("globex", "t1"), {"first_seen": 30}),
        (("acme", "t2"), {"parity": 10}),
    ]
    assert [(row.group, row.requests, row.misses.get("parity")) for row in tenants] == [
        (("acme",), 3, 10),
        (("globex",), 1, None),
    ]
    first = rows[0]
    assert (first.requests, first.prompt, first.available, first.predicted, first.cached) == (2, 200, 120, 100, 120)
    assert first.prompt == first.cached + sum(first.misses.values())


async def test_templates_beyond_the_bound_are_one_row_of_their_tenant(database: Database) -> None:
    async with database.transaction() as session:
        session.add_all([missed(n, "acme", f"t{n}", first_seen=99) for n in range(MAX_GROUPS)])
        session.add_all([missed(1000 + n, "acme", f"u{n}", evicted=n + 1) for n in range(3)])
        session.add(missed(2000, "globex", "t", first_seen=1))
    async with database.session() as session:
        rows = await misses_by(session, "template", NOW)
    assert len(rows) == MAX_GROUPS + 2
    (others,) = [row for row in rows if row.group == ("acme", OTHERS)]
    assert (others.requests, others.misses) == (3, {"evicted": 6})
    assert sum(row.requests for row in rows) == MAX_GROUPS + 4


async def test_a_request_is_found_by_its_tenant_and_by_nobody_elses(database: Database) -> None:
    async with database.transaction() as session:
        session.add(missed(1, "acme", "t1", first_seen=20))
    async with database.session() as session:
        found = await find_request(session, "m1", "acme")
        assert found is not None
        assert found.miss_first_seen == 20
        assert await find_request(session, "m1") == found
        assert await find_request(session, "m1", "globex") is None
        assert await find_request(session, "m2") is None
