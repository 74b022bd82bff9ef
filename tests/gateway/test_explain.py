"""One request, explained: to its tenant, to an operator, and in words."""

import json
from typing import Any

import pytest
from sqlalchemy import update

from cacheplane.attribution import Kind, Part
from gateway.reuse import Change, hint
from tenants import LedgerRow
from tests.gateway.scripted_worker import ScriptedWorker
from tests.gateway.stack import Stack, running
from tests.gateway.test_misses import clocked, requests


async def diverged(stack: Stack) -> str:
    """Two turns with a clock in the system prompt; the id of the second."""
    for body in requests(1, clocked)[:2]:
        response = await stack.post(body)
        assert response.status == 200
        await stack.settled()
    await stack.ledger(2)
    return response.headers["x-request-id"]


async def told(stack: Stack, path: str, key: str) -> Any:
    response = await stack.get(path, key)
    return response.status, await response.json()


async def test_a_tenant_is_told_of_its_own_request_and_of_no_other() -> None:
    async with running(ScriptedWorker("w0", context=20_000), ScriptedWorker("w1", context=20_000)) as stack:
        request_id = await diverged(stack)
        path = f"/v1/saltway/requests/{request_id}"
        status, own = await told(stack, path, stack.keys.acme)
        assert (status, own["request_id"], own["status"], own["model"]) == (200, request_id, 200, "tiny")
        assert own["prompt_tokens"] == own["cached_tokens"] + sum(own["missed_tokens"].values())
        change = own["diverged"]
        assert (change["part"], change["kind"], change["index"]) == ("system", "volatile", 0)
        assert own["missed_tokens"]["diverged_volatile"] == change["tokens"] > 1000
        assert change["token"] < 100
        assert "A value that differs each time" in own["hint"]
        # Costs tell of the load that others make, and are for operators.
        assert not {"placed", "tenant", "worker"} & set(own)
        unknown = await told(stack, "/v1/saltway/requests/req_none", stack.keys.globex)
        assert await told(stack, path, stack.keys.globex) == unknown
        assert unknown[0] == 404
        assert (await told(stack, path, stack.keys.admin))[0] == 403
        assert (await told(stack, path, "sk-sw-wrong"))[0] == 401


async def test_an_operator_is_told_the_decision_too() -> None:
    async with running(ScriptedWorker("w0", context=20_000), ScriptedWorker("w1", context=20_000)) as stack:
        request_id = await diverged(stack)
        status, full = await told(stack, f"/admin/api/requests/{request_id}", stack.keys.admin)
        assert (status, full["tenant"]) == (200, "acme")
        placed = full["placed"]
        assert {placed["worker"], placed["runner_up"]} == {"w0", "w1"}
        for costs in (placed["cost_ms"], placed["runner_up_cost_ms"]):
            terms = [value for name, value in costs.items() if name != "total"]
            assert costs["total"] == pytest.approx(sum(terms), abs=0.01)
        assert 0 <= full["queue_ms"] <= full["ttft_ms"] <= full["duration_ms"]
        assert placed["cost_ms"]["total"] <= placed["runner_up_cost_ms"]["total"]
        assert (await told(stack, f"/admin/api/requests/{request_id}", stack.keys.acme))[0] == 403


PLACED: dict[str, Any] = {
    "worker": "w0",
    "mode": "events",
    "reason": "prefix",
    "cost_ms": {"queue": 1.5, "total": 1.5},
    "runner_up": None,
    "runner_up_cost_ms": None,
}
CHANGE: dict[str, Any] = {"part": "system", "kind": "volatile", "index": 0, "token": 5, "tokens": 64}


@pytest.mark.parametrize(
    ("kept", "placed", "diverged"),
    [
        ({"placed": PLACED, "diverged": CHANGE}, PLACED, CHANGE),  # the first version, word for word
        ({"placed": PLACED, "diverged": None}, PLACED, None),
        ({"placed": PLACED | {"later": 1}, "diverged": CHANGE | {"later": 1}, "later": [1]}, PLACED, CHANGE),
        ({"placed": PLACED, "diverged": CHANGE | {"kind": "later"}}, None, None),
        ({"placed": "later"}, None, None),
    ],
)
async def test_a_record_of_another_version_is_told_as_far_as_it_can_be_read(
    kept: dict[str, Any], placed: dict[str, Any] | None, diverged: dict[str, Any] | None
) -> None:
    async with running(ScriptedWorker("w0", context=20_000)) as stack:
        request_id = (await stack.post(requests(1)[0])).headers["x-request-id"]
        (row,) = await stack.ledger(1)
        async with stack.database.transaction() as session:
            await session.execute(update(LedgerRow).values(explanation=json.dumps(kept)))
        status, full = await told(stack, f"/admin/api/requests/{request_id}", stack.keys.admin)
        assert (status, full["placed"], full["diverged"]) == (200, placed, diverged)
        assert full["prompt_tokens"] == row.prompt_tokens == sum(full["missed_tokens"].values())
        status, own = await told(stack, f"/v1/saltway/requests/{request_id}", stack.keys.acme)
        assert (status, own["diverged"]) == (200, diverged)


@pytest.mark.parametrize("part", [Part.SYSTEM, Part.TOOLS, Part.HISTORY])
@pytest.mark.parametrize("kind", Kind)
def test_every_change_has_a_hint(part: Part, kind: Kind) -> None:
    assert hint(Change(part, kind, 0, 0, 0)).endswith(".")
