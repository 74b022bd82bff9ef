"""The end of a session, as clients say it and as workers hear of it."""

from typing import Any

from gateway.worker_wire import ReleaseRequest
from tests.gateway.scripted_worker import Script, ScriptedWorker
from tests.gateway.stack import Stack, running
from tests.gateway.test_retainer import ASK, WEIGH, ask, leases, settled

KEPT = {"priority": 80, "ttl_seconds": 300, "session": "order/42"}


async def end(stack: Stack, session: str, key: str | None = None) -> int:
    """The status of the answer, which has no body."""
    auth = {"authorization": f"Bearer {key or stack.keys.acme}"}
    async with stack.http.delete(f"{stack.url}/v1/sessions/{session}", headers=auth) as response:
        if response.status == 204:
            assert await response.read() == b""
        return response.status


async def counted(stack: Stack) -> dict[str, float]:
    text = await (await stack.get("/metrics", stack.keys.admin)).text()
    lines = [line for line in text.splitlines() if line.startswith("saltway_session_ends_total{")]
    return {line.split('"')[1]: float(line.split()[-1]) for line in lines}


async def test_the_workers_that_hold_a_session_are_told_of_its_end_and_no_others() -> None:
    async with running(ScriptedWorker(worker_id="w0"), ScriptedWorker(worker_id="w1")) as stack:
        await ask(stack, extra_body={"saltway": {"retention": KEPT}})
        await settled(stack, 1)
        (asked,) = [worker for worker in stack.workers if worker.requests]
        (idle,) = [worker for worker in stack.workers if not worker.requests]
        assert await end(stack, "order/42") == 204
        assert asked.released == [ReleaseRequest(asked.requests[0].tag, "order/42")]
        assert idle.released == []
        assert await counted(stack) == {"told": 1.0, "failed": 0.0}


async def test_every_worker_is_told_of_one_that_is_not_known_and_the_answer_is_the_same() -> None:
    async with running(ScriptedWorker(worker_id="w0"), ScriptedWorker(worker_id="w1")) as stack:
        for _ in range(2):
            assert await end(stack, "never-heard-of") == 204
        assert [len(worker.released) for worker in stack.workers] == [2, 2]


async def test_a_tenant_ends_its_own_sessions_only() -> None:
    async with running() as stack:
        (worker,) = stack.workers
        await ask(stack, extra_body={"saltway": {"retention": KEPT}})
        await ask(stack, key=stack.keys.globex)
        await settled(stack, 2)
        tags = [request.tag for request in worker.requests]
        assert await end(stack, "order/42", stack.keys.globex) == 204
        assert await end(stack, "order/42") == 204
        assert worker.released == [ReleaseRequest(tag, "order/42") for tag in reversed(tags)]


async def test_a_conversation_under_a_wait_ends_by_the_id_of_its_first_request() -> None:
    async with running() as stack:
        (worker,) = stack.workers
        worker.scripts.extend([Script([WEIGH]), Script([ASK])])
        conversation = await ask(stack)
        await leases(stack, 1)
        await ask(stack, conversation)
        await leases(stack, 2)
        first = worker.requests[0]
        assert await end(stack, first.request_id) == 204
        assert worker.released == [ReleaseRequest(first.tag, first.request_id)]


async def test_a_worker_that_cannot_be_told_does_not_fail_the_end() -> None:
    async with running() as stack:
        stack.workers[0].lease_refusal = 503
        assert await end(stack, "order-42") == 204
        assert await counted(stack) == {"told": 0.0, "failed": 1.0}


async def test_who_may_not_ask_and_what_is_no_session_is_refused() -> None:
    async with running() as stack:
        assert await end(stack, "order-42", "sk-nobody") == 401
        assert await end(stack, "order-42", stack.keys.admin) == 403
        assert await end(stack, "x" * 257) == 400
        assert await end(stack, "") == 400
        assert stack.workers[0].released == []


async def test_the_method_is_named_where_another_is_used() -> None:
    async with running() as stack:
        response = await stack.get("/v1/sessions/order-42", stack.keys.acme)
        told: Any = await response.json()
        assert (response.status, response.headers["allow"], told["error"]["code"]) == (
            405,
            "DELETE",
            "method_not_allowed",
        )
