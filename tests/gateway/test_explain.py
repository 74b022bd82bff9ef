"""One request, explained: to its tenant, to an operator, and in words."""

from typing import Any

import pytest

from cacheplane.attribution import Kind, Part, Reason
from gateway.explain import RequestReport, lines
from gateway.reuse import Change, Placed, hint
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
        assert placed["cost_ms"]["total"] <= placed["runner_up_cost_ms"]["total"]
        assert (await told(stack, f"/admin/api/requests/{request_id}", stack.keys.acme))[0] == 403


def report(**fields: Any) -> RequestReport:
    costs = {"queue": 12.5, "prefill": 40.0, "load": 0.0, "total": 52.5}
    known: dict[str, Any] = {
        "request_id": "req_1",
        "created_at": 0,
        "status": 200,
        "model": "tiny",
        "template": "0a1b2c3d",
        "prompt_tokens": 100,
        "available_tokens": 64,
        "routed_tokens": 32,
        "cached_tokens": 16,
        "missed_tokens": {"parity": 16, "routed_away": 32, "diverged_tools": 32, "below_block": 4},
        "diverged": Change(Part.TOOLS, Kind.ORDER, 3, 64, 32),
        "hint": "Send them in one order.",
        "tenant": "acme",
        "worker": "w0",
        "placed": Placed("w0", "events", "holder-busy", costs, "w1", costs | {"load": 3.0, "total": 55.5}),
    }
    return RequestReport(**known | fields)


def test_a_report_reads_like_this() -> None:
    assert list(lines(report())) == [
        "request req_1, tenant acme, model tiny, status 200",
        "prompt 100 tokens, template 0a1b2c3d",
        "  available somewhere           64   64.0 %",
        "  routed (on w0)                32   32.0 %",
        "  delivered from cache          16   16.0 %",
        "computed, because",
        "  routed_away                   32   32.0 %  another worker had them; see the decision",
        "  diverged_tools                32   32.0 %  sent before, behind tools that changed",
        "  parity                        16   16.0 %  predicted on the worker, but it did not have them",
        "  below_block                    4    4.0 %  below a full block, and the last block, which is always computed",
        "diverged in tools[3], token 64: order; it cost 32 tokens",
        "  Send them in one order.",
        "placed on w0 (holder-busy, by events)",
        "  w0                      52.5 ms = queue 12.5 + prefill 40.0",
        "  w1                      55.5 ms = queue 12.5 + prefill 40.0 + load 3.0",
    ]


def test_a_request_that_no_worker_began_has_no_reasons() -> None:
    told = list(lines(report(missed_tokens=None, diverged=None, hint=None, placed=None, worker=None)))
    assert told[-2:] == [
        "No worker told what it reused, so nothing can be said of the rest.",
        "It was never placed on a worker.",
    ]


def test_every_reason_has_a_meaning_in_words() -> None:
    told = report(missed_tokens={reason.value: 1 for reason in Reason})
    assert all(len(line.split("%  ")[1]) > 2 for line in list(lines(told))[6 : 6 + len(Reason)])


@pytest.mark.parametrize("part", [Part.SYSTEM, Part.TOOLS, Part.HISTORY])
@pytest.mark.parametrize("kind", Kind)
def test_every_change_has_a_hint(part: Part, kind: Kind) -> None:
    assert hint(Change(part, kind, 0, 0, 0)).endswith(".")
