"""What workers are asked to keep when a turn has ended, driven by the official SDK against scripted workers."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from openai.types.chat import ChatCompletion

from gateway import toolwaits
from gateway.worker_wire import Retention, RetentionRange
from tests.gateway.scripted_worker import Script, ScriptedWorker
from tests.gateway.stack import Stack, eventually, running
from tests.gateway.tiny_model import tokenizer

QUESTION: list[Any] = [{"role": "user", "content": "How many pounds of salt came to the market of the old town?"}]
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in ("weigh", "ask")
]
WEIGH = '<tool_call>\n{"name": "weigh", "arguments": {"pounds": 3}}\n</tool_call>'
ASK = '<tool_call>\n{"name": "ask", "arguments": {}}\n</tool_call>'
DEFAULT_MS = round(toolwaits.DEFAULT_SECONDS * 1000)


async def ask(stack: Stack, messages: Sequence[Any] = QUESTION, key: str | None = None, **fields: Any) -> list[Any]:
    """The conversation with the reply: the assistant's turn, and a result for each of its calls."""
    asked: dict[str, Any] = {"model": "tiny", "messages": messages, "tools": TOOLS} | fields
    reply = await stack.client(key).chat.completions.create(**asked)
    assert isinstance(reply, ChatCompletion)
    turn = reply.choices[0].message
    results = [{"role": "tool", "tool_call_id": call.id, "content": "3"} for call in turn.tool_calls or []]
    return [*messages, turn.model_dump(exclude_none=True), *results]


async def leases(stack: Stack, count: int, source: str = "tool_wait", outcome: str = "taken") -> None:
    """Until so many are counted."""
    line = f'saltway_leases_total{{outcome="{outcome}",source="{source}"}} {float(count)}\n'

    async def counted() -> bool:
        return line in await (await stack.get("/metrics", stack.keys.admin)).text()

    await eventually(counted)


async def settled(stack: Stack, rows: int) -> None:
    """Until so many requests have ended, and with them whatever they would ask for."""
    await stack.ledger(rows)
    await eventually(lambda: not any(task.get_name() == "retain" for task in asyncio.all_tasks()))


def lease(milliseconds: int, session: str, priority: int = 70) -> Retention:
    return Retention([RetentionRange(priority, milliseconds)], session)


async def test_a_turn_that_ends_in_a_call_is_leased_whole_and_the_next_turn_takes_its_place() -> None:
    async with running() as stack:
        worker = stack.workers[0]
        worker.scripts.extend([Script([WEIGH]), Script([ASK])])
        conversation = await ask(stack)
        await leases(stack, 1)
        (first,), (asked,) = worker.requests, worker.retained
        assert asked.tokens == first.tokens + tokenizer().encode(WEIGH).ids
        assert (asked.spans, asked.tag) == (first.spans, first.tag)
        assert first.retention is None
        assert asked.retention == lease(DEFAULT_MS, first.request_id)

        conversation = await ask(stack, conversation)
        await leases(stack, 2)
        nothing = Retention([RetentionRange(0, 0, 0, 0)], first.request_id)
        assert worker.requests[1].retention == nothing
        assert worker.retained[1].retention == lease(DEFAULT_MS, first.request_id)

        await ask(stack, conversation)
        await settled(stack, 3)
        assert worker.requests[2].retention == nothing
        assert len(worker.retained) == 2


async def test_a_lease_that_the_next_turn_asks_for_takes_the_place_of_the_wait() -> None:
    async with running() as stack:
        worker = stack.workers[0]
        worker.scripts.append(Script([WEIGH]))
        conversation = await ask(stack)
        session = worker.requests[0].request_id
        await ask(stack, conversation, extra_body={"prompt_cache_options": {"ttl": "1h"}})
        assert worker.requests[1].retention == lease(3_600_000, session, priority=60)
        own = {"priority": 9, "ttl_seconds": 1, "session": "mine"}
        await ask(stack, conversation, extra_body={"saltway": {"retention": own}})
        assert worker.requests[2].retention == lease(1000, "mine", priority=9)
        await leases(stack, 1, "openai")
        await leases(stack, 1, "request")


async def test_a_breakpoint_of_the_client_is_where_its_lease_ends() -> None:
    async with running() as stack:
        mark = {"prompt_cache_breakpoint": {"mode": "explicit"}}
        book: Any = {"role": "user", "content": [{"type": "text", "text": "The whole book of salt." * 4} | mark]}
        await ask(stack, [book, *QUESTION])
        await ask(stack, [book, {"role": "user", "content": "Another question."}])
        one, two = (request.tokens for request in stack.workers[0].requests)
        shared = next(index for index, (here, there) in enumerate(zip(one, two, strict=False)) if here != there)
        for request in stack.workers[0].requests:
            assert request.retention is not None
            (kept,) = request.retention.ranges
            assert (kept.priority, kept.ttl_ms, kept.start) == (60, 1_800_000, 0)
            assert kept.end is not None
            assert 0 <= shared - kept.end < 10  # the opening of the next turn


async def test_the_time_that_a_tool_takes_is_learned() -> None:
    async with running(ScriptedWorker(context=4096)) as stack:
        worker = stack.workers[0]
        worker.default = Script([WEIGH])
        conversation = await ask(stack)
        for _ in range(10):
            conversation = await ask(stack, conversation)
        await leases(stack, 11)
        assert worker.retained[0].retention.ranges[0].ttl_ms == DEFAULT_MS
        assert worker.retained[-1].retention.ranges[0].ttl_ms == round(toolwaits.EDGES[0] * 1000)


async def test_another_tenants_call_ids_are_not_matched() -> None:
    async with running() as stack:
        worker = stack.workers[0]
        worker.scripts.append(Script([WEIGH]))
        conversation = await ask(stack)
        await ask(stack, conversation, stack.keys.globex)
        assert worker.requests[1].retention is None


async def test_a_stream_is_leased_too_and_each_choice_has_a_session() -> None:
    async with running() as stack:
        worker = stack.workers[0]
        worker.scripts.append(Script([WEIGH[:9], WEIGH[9:], "\n", ASK]))
        stream = await stack.client().chat.completions.create(
            model="tiny", messages=QUESTION, tools=TOOLS, stream=True, n=2
        )
        assert [chunk async for chunk in stream]
        await leases(stack, 2)
        name = worker.requests[0].request_id
        assert {asked.retention.session for asked in worker.retained} == {name, f"{name}.1"}


@pytest.mark.parametrize(
    ("fields", "script", "priority"),
    [
        ({}, Script(), 70),
        ({}, Script([WEIGH]), 0),
        ({}, Script([WEIGH], finish="length"), 70),
        ({"tool_choice": "none"}, Script([WEIGH]), 70),
        ({"extra_body": {"saltway": {"store": False}}}, Script([WEIGH]), 70),
        ({"extra_body": {"prompt_cache_retention": "24h"}}, Script([WEIGH]), 70),
    ],
)
async def test_no_wait_is_leased_without_a_call_or_a_store_or_where_the_client_has_said_how_long(
    fields: dict[str, Any], script: Script, priority: int
) -> None:
    async with running(tool_wait_priority=priority) as stack:
        stack.workers[0].scripts.append(script)
        await ask(stack, **fields)
        await settled(stack, 1)
        assert stack.workers[0].retained == []


async def test_a_named_call_is_waited_for() -> None:
    async with running() as stack:
        stack.workers[0].scripts.append(Script([WEIGH]))
        await ask(stack, tool_choice={"type": "function", "function": {"name": "weigh"}})
        await leases(stack, 1)


async def test_a_client_sees_nothing_of_a_lease_that_fails() -> None:
    async with running() as stack:
        worker = stack.workers[0]
        worker.default = Script([WEIGH])
        for count, status in enumerate((400, 404, 503), 1):
            worker.lease_refusal = status
            conversation = await ask(stack)
            assert conversation[-1]["role"] == "tool"
            await leases(stack, count, outcome="failed")
        worker.lease_refusal = None
        await ask(stack, conversation)
        await leases(stack, 1)
