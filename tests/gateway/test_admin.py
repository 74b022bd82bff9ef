"""The operator's side: figures from real traffic, and the static page."""

import asyncio
import re
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from gateway.admin import PAGE_FILES, parse_window
from gateway.errors import BadRequestError
from tenants import Database
from tests.gateway.scripted_worker import Script
from tests.gateway.stack import Stack, eventually, running

SAID = "Nobody but the worker should ever see this sentence."


def body(**fields: Any) -> dict[str, Any]:
    return {"model": "tiny", "messages": [{"role": "user", "content": SAID}]} | fields


async def served_twice(stack: Stack) -> int:
    """acme asks twice and globex once; returns the prompt's length in tokens."""
    tokens = 0
    for key in (stack.keys.acme, stack.keys.acme, stack.keys.globex):
        assert (await stack.post(body(), key)).status == 200
        tokens = len(stack.workers[0].requests[0].tokens)
        await stack.indexed("w0", tokens // 16 * (2 if key == stack.keys.globex else 1))
    await stack.ledger(3)
    return tokens


async def test_hit_rates_are_per_tenant_over_the_window_and_summed() -> None:
    async with running() as stack:
        tokens = await served_twice(stack)
        rates = await stack.admin("hit-rates?window=1h")
        assert rates["window_seconds"] == 3600
        assert rates["until"] - rates["since"] == 3_600_000
        acme, globex = rates["tenants"]
        reused = tokens // 16 * 16
        assert (acme["tenant"], acme["requests"], acme["prompt_tokens"]) == ("acme", 2, 2 * tokens)
        assert (acme["cached_tokens"], acme["predicted_tokens"]) == (reused, reused)
        assert acme["hit_rate"] == acme["predicted_rate"] == pytest.approx(reused / (2 * tokens))
        assert (globex["tenant"], globex["cached_tokens"], globex["hit_rate"]) == ("globex", 0, 0.0)
        total = rates["total"]
        assert (total["requests"], total["prompt_tokens"], total["cached_tokens"]) == (3, 3 * tokens, reused)


async def test_while_the_database_is_away_figures_are_not_to_be_had_and_nothing_else_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def away(_database: Database) -> None:
        raise OperationalError("SELECT 1", {}, ConnectionRefusedError())

    async with running() as stack:
        await stack.admin("live")  # the key is known from now on
        monkeypatch.setattr(Database, "session", away)
        for path in ("hit-rates", "misses", "requests/req_1", "tenants/acme/retention"):
            response = await stack.get(f"/admin/api/{path}", stack.keys.admin)
            assert (path, response.status) == (path, 503)
            assert (await response.json())["error"]["code"] == "store_unavailable"
            assert response.headers["retry-after"] == "1"
        assert (await stack.admin("live"))["requests"] == []


async def test_a_query_of_too_many_fields_is_refused() -> None:
    async with running() as stack:
        response = await stack.get("/admin/api/hit-rates?" + "&".join(f"a{n}=1" for n in range(21)), stack.keys.admin)
        assert (response.status, (await response.json())["error"]["code"]) == (400, "out_of_range")


async def test_an_empty_window_has_no_rate_rather_than_a_zero() -> None:
    async with running() as stack:
        rates = await stack.admin("hit-rates")
        assert (rates["tenants"], rates["total"]["hit_rate"], rates["window_seconds"]) == ([], None, 900)


@pytest.mark.parametrize("window", ["", "0m", "15", "m", "-1h", "91d", "1e3s", "99999999d", "1h1h"])
async def test_a_window_that_is_none_is_refused_by_name(window: str) -> None:
    with pytest.raises(BadRequestError) as refused:
        parse_window(window)
    assert refused.value.param == "window"


def test_windows_are_seconds() -> None:
    assert [parse_window(text) for text in ("90s", "15m", "6h", "90d")] == [90, 900, 21_600, 7_776_000]


async def test_live_requests_show_their_state_and_counts_and_move_to_recent() -> None:
    async with running() as stack:
        go_on = [asyncio.Event() for _ in range(3)]
        stack.workers[0].scripts.append(
            Script(hold_before_start=go_on[0], hold_before_first=go_on[1], hold_after=(2, go_on[2]))
        )
        asking = asyncio.create_task(stack.post(body(stream=True)))
        for event, state in zip(go_on, ("queued", "prefill", "decoding"), strict=True):
            (live,) = await in_state(stack, state)
            assert (live["tenant"], live["model"], live["worker"], live["streamed"]) == ("acme", "tiny", "w0", True)
            assert live["age_ms"] > 0
            event.set()
        assert live["completion_tokens"] == len("Hello, ")
        assert live["prompt_tokens"] == len(stack.workers[0].requests[0].tokens)
        await asking

        async def ended() -> bool:
            return not (await stack.admin("live"))["requests"]

        await eventually(ended)
        (recent,) = (await stack.admin("recent"))["requests"]
        assert (recent["id"], recent["status"], recent["finish_reason"]) == (live["id"], 200, "stop")
        assert recent["completion_tokens"] == len("Hello, world.")
        assert recent["ttft_ms"] <= recent["duration_ms"]


async def in_state(stack: Stack, state: str) -> list[dict[str, Any]]:
    """The live requests, once the only one is in that state (decoding: with its tokens counted)."""
    found: list[dict[str, Any]] = []

    async def reached() -> bool:
        found[:] = (await stack.admin("live"))["requests"]
        return [(live["state"], live["completion_tokens"] > 4) for live in found] == [(state, state == "decoding")]

    await eventually(reached)
    return found


async def test_no_answer_of_the_operators_api_holds_prompt_text() -> None:
    async with running() as stack:
        await served_twice(stack)
        for path in ("live", "recent", "workers", "hit-rates"):
            text = await (await stack.get(f"/admin/api/{path}", stack.keys.admin)).text()
            assert SAID not in text
            assert "Hello, world" not in text
        assert "no-store" in (await stack.get("/admin/api/live", stack.keys.admin)).headers["cache-control"]


async def test_metrics_count_what_was_served_and_are_behind_the_admin_key() -> None:
    async with running() as stack:
        tokens = await served_twice(stack)
        assert (await stack.get("/metrics", stack.keys.acme)).status == 403
        response = await stack.get("/metrics", stack.keys.admin)
        text = await response.text()
        assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert 'saltway_requests_total{model="tiny",status="200",tenant="acme"} 2.0' in text
        assert f'saltway_tokens_total{{kind="prompt",tenant="acme"}} {2.0 * tokens}' in text
        assert f'saltway_tokens_total{{kind="cached",tenant="acme"}} {float(tokens // 16 * 16)}' in text
        assert 'saltway_placements_total{mode="events",reason="only-worker"} 3.0' in text
        assert 'saltway_worker_state{state="ready",worker="w0"} 1.0' in text
        assert 'saltway_stream_state{state="live",worker="w0"} 1.0' in text
        assert f'saltway_index_blocks{{worker="w0"}} {2.0 * (tokens // 16)}' in text
        assert re.search(r"saltway_overhead_seconds_count 3\.0", text)
        assert "saltway_in_flight_requests 0.0" in text
        assert SAID not in text


async def test_the_page_is_static_locked_down_and_complete() -> None:
    async with running() as stack:
        page = await stack.get("/admin")
        assert page.status == 200
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert page.headers["x-frame-options"] == "DENY"
        text = await page.text()
        for address in re.findall(r'(?:href|src)="(/[^"]+)"', text):
            assert (address, (await stack.get(address)).status) == (address, 200)
        assert not re.search(r"<script>|style=|\son[a-z]+=|https?://(?!www\.w3\.org)", text)
        assert (await stack.get("/admin/secret")).status == 404
        assert (await stack.get("/admin/../app.py")).status == 404


async def test_the_page_is_not_sent_again_when_it_is_known() -> None:
    async with running() as stack:
        for name in PAGE_FILES:
            first = await stack.get(f"/admin/{name}")
            again = await stack.get(f"/admin/{name}", **{"if-none-match": first.headers["etag"]})
            assert (again.status, await again.read()) == (304, b"")
