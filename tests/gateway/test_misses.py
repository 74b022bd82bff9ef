"""Why tokens were computed, as callers and operators are told it: on replayed sessions with one fault injected."""

import asyncio
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from openai.types import CompletionUsage
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from bench.agents import made_up, made_up_tools
from cacheplane.attribution import Reason, contents
from cacheplane.identity import BlockChain
from tenants import MISS, MISSES, SaltStore, now_ms
from tests.gateway.scripted_worker import Script, ScriptedWorker
from tests.gateway.stack import Stack, eventually, running

TURNS = 4
SYSTEM = "Answer in one sentence.\nUse a tool when an id is given.\nAsk when none is given, and never guess one."
Fault = Callable[[int, dict[str, Any]], dict[str, Any]]


def unharmed(_turn: int, body: dict[str, Any]) -> dict[str, Any]:
    return body


def shuffled(turn: int, body: dict[str, Any]) -> dict[str, Any]:
    tools = body["tools"]
    return body | {"tools": tools[turn:] + tools[:turn]}


def clocked(turn: int, body: dict[str, Any]) -> dict[str, Any]:
    return _system(body, f"It is 2026-11-29T21:0{turn}:17Z. {SYSTEM}")


def carriages(turn: int, body: dict[str, Any]) -> dict[str, Any]:
    return _system(body, SYSTEM.replace("\n", "\r\n") if turn % 2 else SYSTEM)


def _system(body: dict[str, Any], text: str) -> dict[str, Any]:
    return body | {"messages": [{"role": "system", "content": text}, *body["messages"][1:]]}


def requests(desk: int, fault: Fault = unharmed) -> list[dict[str, Any]]:
    """The turns of one made-up session; desks differ from their first sentence on."""
    session = made_up(desk, turns=TURNS, tools=6)
    tools = made_up_tools(6)
    return [
        fault(turn, {"model": "tiny", "messages": session.request(turn), "tools": tools, "tool_choice": "none"})
        for turn in range(TURNS)
    ]


async def tell(stack: Stack, body: dict[str, Any]) -> CompletionUsage:
    """One turn, its blocks indexed afterwards; the counts are checked against each other."""
    reply = await stack.client().chat.completions.create(**body)
    assert isinstance(reply, ChatCompletion)
    assert reply.usage is not None
    missed = missed_of(reply.usage)
    assert reply.usage.prompt_tokens_details is not None
    assert reply.usage.prompt_tokens == (reply.usage.prompt_tokens_details.cached_tokens or 0) + sum(missed.values())
    return reply.usage


def missed_of(usage: CompletionUsage) -> Counter[str]:
    extra = (usage.model_extra or {})["saltway"]
    return Counter(extra["missed_tokens"])


async def missed_later(stack: Stack, bodies: list[dict[str, Any]]) -> Counter[str]:
    """What a session missed from its second turn on."""
    missed: Counter[str] = Counter()
    for turn, body in enumerate(bodies):
        usage = await tell(stack, body)
        await stack.settled()
        if turn:
            missed += missed_of(usage)
    return missed


async def test_what_a_client_does_to_its_prompts_is_what_it_is_told() -> None:
    async with running(ScriptedWorker(context=20_000)) as stack:
        healthy = await missed_later(stack, requests(1))
        assert set(healthy) == {"first_seen", "below_block"}
        # Sessions of desks differ by their numbers: a first turn has diverged from the other desk's, a later one not.
        for desk, (fault, reason) in enumerate(
            ((shuffled, "diverged_tools"), (clocked, "diverged_volatile"), (carriages, "diverged_system"))
        ):
            missed = await missed_later(stack, requests(desk + 2, fault))
            assert (fault.__name__, missed.most_common(1)[0][0]) == (fault.__name__, reason)
            assert missed[reason] > missed.total() / 2
        served = await stack.ledger(4 * TURNS)
        rows = {row["template"]: row for row in (await stack.admin("misses?window=1h"))["rows"]}
        assert sum(row["requests"] for row in rows.values()) == len(served)
        worst = max(rows.values(), key=lambda row: row["missed_tokens"].get("diverged_volatile", 0))
        assert worst["tenant"] == "acme"
        assert worst["delivered_rate"] <= worst["routed_rate"] <= worst["available_rate"] < 0.5
        for by, name in (("tenant", "acme"), ("model", "tiny"), ("worker", "w0")):
            (row,) = (await stack.admin(f"misses?window=1h&by={by}"))["rows"]
            assert (row[by], row["requests"]) == (name, len(served))
            assert sum(row["missed_tokens"].values()) == sum(r.prompt_tokens - r.cached_tokens for r in served)
        assert (await stack.get("/admin/api/misses?by=prompt", stack.keys.admin)).status == 400
        text = await (await stack.get("/metrics", stack.keys.admin)).text()
        assert 'saltway_missed_tokens_total{reason="diverged_tools",template="' in text


async def test_a_killed_worker_and_a_pool_that_is_too_small_are_told_from_each_other() -> None:
    workers = [ScriptedWorker("w0", context=20_000, capacity=260), ScriptedWorker("w1", context=20_000, capacity=260)]
    async with running(*workers) as stack:
        first = requests(1)
        for body in first[:2]:
            await tell(stack, body)
            await stack.settled()
        home = next(worker for worker in workers if worker.requests)
        await home.kill()

        async def suspected() -> bool:
            views = (await stack.admin("workers"))["workers"]
            return any(view["id"] == home.worker_id and view["state"] == "suspect" for view in views)

        await eventually(suspected)
        lost = missed_of(await tell(stack, first[2]))
        assert lost.most_common(1)[0][0] == "worker_lost"
        # What is left of the pool holds one session's prompt, so that two in turn take it from each other.
        left = next(worker for worker in workers if worker is not home)
        missed: Counter[str] = Counter()
        for turn in range(TURNS):
            for desk in (2, 3):
                usage = await tell(stack, requests(desk)[turn])
                await stack.indexed(left.worker_id, left.blocks)
                missed += missed_of(usage) if turn else Counter()
        assert missed.most_common(1)[0][0] == "evicted"


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
@pytest.mark.parametrize("said", [0, 2], ids=["before the first token", "in the midst of the answer"])
async def test_what_is_told_of_a_prompt_is_of_the_worker_that_ended_its_answer(*, said: int, stream: bool) -> None:
    async with running(ScriptedWorker("w0", context=20_000), ScriptedWorker("w1", context=20_000)) as stack:
        first, second, *_ = requests(1)
        await tell(stack, first)
        home, other = sorted(stack.workers, key=lambda worker: not worker.requests)
        known = home._chain(home.requests[0])
        await other.store(BlockChain(known.hashes[:10], known.block_size))
        await stack.settled()
        heard = asyncio.Event()
        home.scripts.append(Script(hold_after=(1, heard), error_after=said))
        telling = asyncio.create_task(streamed(stack, second) if stream else tell(stack, second))

        async def passed_on() -> bool:
            live = (await stack.admin("live"))["requests"]
            return not said or any(request["completion_tokens"] for request in live)

        await eventually(passed_on)
        heard.set()
        usage = await telling
        assert home.requests[-1].request_id == other.requests[-1].request_id
        assert bool(other.requests[-1].accepted) == bool(said)
        assert usage.prompt_tokens_details is not None
        assert usage.prompt_tokens_details.cached_tokens == 160
        missed = missed_of(usage)
        assert usage.prompt_tokens == 160 + missed.total()
        held = (usage.prompt_tokens - 1) // 16 * 16 if said else known.tokens  # by the worker that failed
        assert missed["worker_lost"] == held - 160
        row = (await stack.ledger(2))[1]
        assert (row.worker_id, row.cached_tokens, row.predicted_tokens) == (other.worker_id, 160, 160)
        assert {reason: getattr(row, MISS + reason) for reason in missed} == dict(missed)
        told = await (await stack.get(f"/admin/api/requests/{row.request_id}", stack.keys.admin)).json()
        assert (told["worker"], told["placed"]["worker"]) == (other.worker_id, other.worker_id)


async def streamed(stack: Stack, body: dict[str, Any]) -> CompletionUsage:
    """What the last frame of a stream says."""
    chunks = await stack.client().chat.completions.create(**body, stream=True, stream_options={"include_usage": True})
    (usage,) = [chunk.usage async for chunk in chunks if chunk.usage is not None]
    assert isinstance(usage, CompletionUsage)
    return usage


async def test_a_rotated_salt_is_told_once_and_then_forgotten() -> None:
    async with running(ScriptedWorker(context=20_000)) as stack:
        first, second, third, _ = requests(1)
        await tell(stack, first)
        await stack.settled()
        await SaltStore(stack.database).rotate("tenant:acme", now_ms())
        missed: list[Counter[str]] = []

        async def rotated() -> bool:  # within two seconds, as the epoch is read again
            missed.append(missed_of(await tell(stack, second)))
            return "salt_rotated" in missed[-1]

        await eventually(rotated)
        assert missed[-1].most_common(1)[0][0] == "salt_rotated"
        await stack.settled()
        assert set(missed_of(await tell(stack, third))) == {"first_seen", "below_block"}


async def test_what_is_not_to_be_stored_is_told_so() -> None:
    async with running(ScriptedWorker(context=20_000)) as stack:
        body = requests(1)[0] | {"extra_body": {"saltway": {"store": False}}}
        await tell(stack, body)
        assert (await tell(stack, body)).prompt_tokens > 1000
        assert missed_of(await tell(stack, body)).most_common(1)[0][0] == "not_stored"


async def test_another_tenants_prompt_is_new_to_a_tenant_and_counted_for_operators_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # By a secret of chance two of a prompt's 163 blocks share a place in the table once in twenty times: one is missed.
    monkeypatch.setattr(contents, "secrets", SimpleNamespace(token_bytes=lambda count: b"7" * count))
    async with running(ScriptedWorker(context=20_000)) as stack:
        body = requests(1)[0]
        assert (await stack.post(body, stack.keys.globex)).status == 200
        response = await stack.post(body)
        assert response.headers["x-saltway-miss"].startswith("first_seen=")
        assert "isolated" not in await response.text()
        assert "isolated" not in str(response.headers)
        for row in await stack.ledger(2):
            assert "isolated" not in repr(row)
        missed = (await response.json())["usage"]["saltway"]["missed_tokens"]
        text = await (await stack.get("/metrics", stack.keys.admin)).text()
        assert f'saltway_tenant_isolated_tokens_total{{model="tiny"}} {float(missed["first_seen"])}' in text


async def test_the_sdks_types_take_the_addition_and_a_header_has_the_same() -> None:
    async with running(ScriptedWorker(context=20_000)) as stack:
        body = requests(1)[0]
        raw = await stack.client().chat.completions.with_raw_response.create(**body)
        reply = raw.parse()
        assert isinstance(reply.usage, CompletionUsage)
        assert ChatCompletion.model_validate_json(raw.text, strict=True).usage == reply.usage
        told = dict(entry.split("=") for entry in raw.headers["x-saltway-miss"].split(","))
        assert {reason: int(tokens) for reason, tokens in told.items()} == dict(missed_of(reply.usage))
        await stack.settled()
        stream = await stack.client().chat.completions.create(
            **body, stream=True, stream_options={"include_usage": True}
        )
        *chunks, last = [chunk async for chunk in stream]
        assert isinstance(last, ChatCompletionChunk)
        assert last.usage is not None
        assert set(missed_of(last.usage)) == {"below_block"}
        assert all(chunk.usage is None for chunk in chunks)


async def test_the_ledger_keeps_the_reasons_of_each_request_and_of_those_alone_that_a_worker_began() -> None:
    async with running(ScriptedWorker(context=20_000)) as stack:
        usage = await tell(stack, requests(1)[0])
        stack.workers[0].scripts.append(Script(refuse=(400, "grammar", None)))
        assert (await stack.post(requests(2)[0])).status == 400
        served, refused = await stack.ledger(2)
        assert {name.removeprefix(MISS) for name in MISSES} == {reason.value for reason in Reason}
        kept = {name.removeprefix(MISS): getattr(served, name) for name in MISSES}
        assert {reason: tokens for reason, tokens in kept.items() if tokens} == dict(missed_of(usage))
        assert sum(kept.values()) == served.prompt_tokens - served.cached_tokens
        assert all(getattr(refused, name) is None for name in MISSES)
        assert served.template == refused.template  # desks differ by a number alone
