"""An operator's retention policies: how they are set, and what they make of requests that say nothing themselves."""

from typing import Any

import pytest

from gateway.worker_wire import Retention, RetentionRange
from tests.gateway.scripted_worker import Script
from tests.gateway.stack import Stack, running
from tests.gateway.test_retainer import ASK, QUESTION, TOOLS, WEIGH, ask, lease, leases, settled
from tests.gateway.test_sessions import end

HOUR = {"priority": 60, "ttl_seconds": 3600}


async def policy(
    stack: Stack, method: str = "GET", body: Any = None, tenant: str = "acme", key: str | None = None
) -> tuple[int, Any]:
    url = f"{stack.url}/admin/api/tenants/{tenant}/retention"
    auth = {"authorization": f"Bearer {key or stack.keys.admin}"}
    async with stack.http.request(method, url, headers=auth, json=body) as response:
        return response.status, await response.json()


async def test_a_policy_is_put_read_and_cleared() -> None:
    async with running() as stack:
        none = {"tenant": "acme", "retention": None}
        kept = {"tenant": "acme", "retention": {**HOUR, "part": "conversation"}}
        assert await policy(stack) == (200, none)
        assert await policy(stack, "PUT", HOUR) == (200, kept)
        assert await policy(stack) == (200, kept)
        assert (await policy(stack, tenant="globex"))[1]["retention"] is None
        for _ in range(2):
            assert await policy(stack, "DELETE") == (200, none)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"priority": 101, "ttl_seconds": 60}, "priority"),
        ({"priority": -1, "ttl_seconds": 60}, "priority"),
        ({"priority": 50, "ttl_seconds": 0}, "ttl_seconds"),
        ({"priority": 50, "ttl_seconds": 604_801}, "ttl_seconds"),
        ({"priority": 50, "ttl_seconds": 1.5}, "ttl_seconds"),
        ({"priority": 50}, "ttl_seconds"),
        ({"priority": 50, "ttl_seconds": 60, "part": "tools"}, "part"),
        ([], None),
    ],
)
async def test_a_policy_out_of_bounds_is_refused_by_name(body: Any, param: str | None) -> None:
    async with running() as stack:
        status, told = await policy(stack, "PUT", body)
        assert (status, told["error"]["param"]) == (400, param)
        assert (await policy(stack))[1]["retention"] is None


async def test_only_an_operator_may_and_only_for_tenants_that_there_are() -> None:
    async with running() as stack:
        assert (await policy(stack, "PUT", HOUR, key=stack.keys.acme))[0] == 403
        for method, body in (("GET", None), ("PUT", HOUR), ("DELETE", None)):
            status, told = await policy(stack, method, body, tenant="initech")
            assert (status, told["error"]["code"]) == (404, "not_found")


async def test_it_holds_for_who_says_nothing_and_for_that_tenant_alone() -> None:
    async with running() as stack:
        (worker,) = stack.workers
        await policy(stack, "PUT", HOUR)
        said = {"priority": 9, "ttl_seconds": 1, "session": "mine"}
        await ask(stack)
        await ask(stack, extra_body={"saltway": {"retention": said}})
        await ask(stack, extra_body={"prompt_cache_options": {"mode": "explicit"}})
        await ask(stack, extra_body={"saltway": {"store": False}})
        await ask(stack, key=stack.keys.globex)
        await policy(stack, "DELETE")
        await ask(stack)
        asked = [request.retention for request in worker.requests]
        assert asked == [lease(3_600_000, worker.requests[0].request_id, 60), lease(1000, "mine", 9), *[None] * 4]
        await leases(stack, 1, "policy")


async def test_the_system_prompt_and_tools_alone_are_one_lease_for_all_conversations() -> None:
    async with running() as stack:
        (worker,) = stack.workers
        await policy(stack, "PUT", {**HOUR, "part": "system"})
        system: list[Any] = [{"role": "system", "content": "You weigh salt at the market of the old town."}]
        await ask(stack, system + QUESTION)
        await ask(stack, [*system, {"role": "user", "content": "Well?"}])
        await ask(stack, QUESTION, tools=TOOLS[:1])
        (first, again, other) = [request.retention for request in worker.requests]
        assert first is not None
        assert other is not None
        assert first == again
        assert first.session.startswith("template.")
        assert other.session != first.session
        shared = 0
        one, two = worker.requests[0].tokens, worker.requests[1].tokens
        while one[shared] == two[shared]:
            shared += 1
        assert first.ranges == [RetentionRange(60, 3_600_000, 0, first.ranges[0].end)]
        assert 0 <= shared - (first.ranges[0].end or 0) < 10  # the opening of the user's turn


async def test_without_a_system_prompt_there_is_none_to_keep() -> None:
    async with running() as stack:
        await policy(stack, "PUT", {**HOUR, "part": "system"})
        reply = await stack.post({"model": "tiny", "messages": QUESTION})
        assert reply.status == 200
        assert stack.workers[0].requests[0].retention is None


async def test_a_wait_for_tools_is_a_lease_beside_it_and_both_end_with_the_session() -> None:
    async with running() as stack:
        (worker,) = stack.workers
        await policy(stack, "PUT", HOUR)
        worker.scripts.extend([Script([WEIGH]), Script([ASK])])
        conversation = await ask(stack)
        await leases(stack, 1)
        await ask(stack, conversation)
        await leases(stack, 2)
        name = worker.requests[0].request_id
        assert [request.retention for request in worker.requests] == [lease(3_600_000, name, 60)] * 2
        assert {asked.retention.session for asked in worker.retained} == {f"{name}.wait"}
        await settled(stack, 2)
        assert await end(stack, name) == 204
        assert {asked.session for asked in worker.released} == {name, f"{name}.wait"}


async def test_a_policys_lease_takes_the_place_of_the_wait_of_the_turn_before() -> None:
    async with running() as stack:
        (worker,) = stack.workers
        worker.scripts.append(Script([WEIGH]))
        conversation = await ask(stack)
        await leases(stack, 1)
        await policy(stack, "PUT", HOUR)
        await ask(stack, conversation)
        name = worker.requests[0].request_id
        assert worker.requests[1].retention == Retention([RetentionRange(60, 3_600_000)], name)
