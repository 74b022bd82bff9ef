"""The operator's page in real Chromium, against the real gateway and a scripted worker."""

import asyncio
from typing import Any

import pytest
from playwright.async_api import Page, Route, expect

from cacheplane.breaker import TRIP_FAILURES
from cacheplane.parity import ENOUGH
from tests.gateway.scripted_worker import Script, ScriptedWorker
from tests.gateway.stack import Stack, running

pytestmark = pytest.mark.asyncio(loop_scope="session")

SAID = "A sentence that belongs to acme alone."


def body(**fields: Any) -> dict[str, Any]:
    return {"model": "tiny", "messages": [{"role": "user", "content": SAID}]} | fields


async def sign_in(page: Page, stack: Stack, key: str | None = None) -> None:
    await page.goto(f"{stack.url}/admin")
    await page.get_by_label("Admin key").fill(key or stack.keys.admin)
    await page.get_by_role("button", name="Sign in").click()


async def traffic(stack: Stack) -> int:
    """acme asks twice, the second time warm; returns the prompt's length."""
    await stack.post(body())
    tokens = len(stack.workers[0].requests[0].tokens)
    await stack.indexed("w0", tokens // 16)
    await stack.post(body())
    await stack.ledger(2)
    return tokens


async def test_the_page_asks_for_a_key_and_shows_nothing_before(page: Page) -> None:
    async with running() as stack:
        await page.goto(f"{stack.url}/admin")
        await expect(page).to_have_title("Saltway · prefix reuse")
        await expect(page.get_by_role("heading", name="Operator sign-in")).to_be_visible()
        await expect(page.locator("#figures")).to_be_hidden()
        await expect(page.get_by_label("Admin key")).to_be_focused()


async def test_a_key_that_is_no_admin_key_is_refused_in_words(page: Page) -> None:
    async with running() as stack:
        for key in ("sk-sw-wrong", stack.keys.acme, "ключ"):
            await sign_in(page, stack, key)
            await expect(page.get_by_role("alert").first).to_have_text("That key is not a valid admin key.")
            await expect(page.locator("#figures")).to_be_hidden()
            assert await page.evaluate("sessionStorage.length") == 0


async def test_empty_tables_say_so(page: Page) -> None:
    async with running() as stack:
        await sign_in(page, stack)
        await expect(page.locator("#status")).to_have_text("Live")
        await expect(page.locator("#rates-empty")).to_have_text("No requests in this window.")
        await expect(page.locator("#live-empty")).to_have_text("Nothing in flight.")
        await expect(page.locator("#recent-empty")).to_have_text("No request has ended yet.")
        await expect(page.locator("#total-rate")).to_have_text("\N{EN DASH}")


async def test_hit_rates_are_shown_per_tenant_with_a_bar(page: Page) -> None:
    async with running() as stack:
        tokens = await traffic(stack)
        await sign_in(page, stack)
        share = tokens // 16 * 16 / (2 * tokens)
        row = page.locator("#rates tbody tr")
        await expect(row).to_have_count(1)
        await expect(row.locator("td").first).to_have_text("acme")
        await expect(row.locator("td").nth(2)).to_have_text(f"{share * 100:.1f} %")
        await expect(row.get_by_role("img")).to_have_attribute("aria-label", f"acme: {share * 100:.1f} % delivered")
        width = await row.locator(".bar i").evaluate("bar => parseFloat(bar.style.width)")
        assert width == pytest.approx(share * 100)
        await expect(page.locator("#total-rate")).to_have_text(f"{share * 100:.1f} %")
        await expect(page.locator("#total-requests")).to_have_text("2")


async def test_why_tokens_were_computed_is_shown_by_template_beside_the_three_rates(page: Page) -> None:
    async with running() as stack:
        tokens = await traffic(stack)
        await sign_in(page, stack)
        row = page.locator("#misses tbody tr")
        await expect(row).to_have_count(1)
        cells = row.locator("td")
        await expect(cells.first).to_have_text("acme")
        await expect(cells.nth(1)).to_have_text("plain")
        reused = tokens // 16 * 16 / (2 * tokens)
        for column in (3, 4, 5):  # delivered, routed, available
            await expect(cells.nth(column)).to_have_text(f"{reused * 100:.1f} %")
        computed = 2 * tokens - tokens // 16 * 16
        await expect(cells.nth(6)).to_have_text(str(computed))
        new = (tokens - 1) // 16 * 16 / computed
        await expect(cells.nth(7)).to_have_text(f"first seen {new * 100:.1f} %, below block {(1 - new) * 100:.1f} %")


async def test_the_window_can_be_chosen(page: Page) -> None:
    async with running() as stack:
        await traffic(stack)
        await sign_in(page, stack)
        await expect(page.locator("#status")).to_have_text("Live")
        for label, window in (("5 min", "5m"), ("24 hours", "24h")):
            for report in ("hit-rates", "misses"):
                async with page.expect_response(f"**/{report}?window={window}") as reply:
                    await page.get_by_text(label, exact=True).click()
                assert (await reply.value).status == 200
                await page.get_by_text("15 min", exact=True).click()
        await expect(page.locator("#rates tbody tr")).to_have_count(1)


async def test_a_live_request_appears_moves_and_leaves_within_the_second(page: Page) -> None:
    async with running() as stack:
        go_on = [asyncio.Event(), asyncio.Event()]
        stack.workers[0].scripts.append(Script(hold_before_first=go_on[0], hold_after=(1, go_on[1])))
        await sign_in(page, stack)
        asking = asyncio.create_task(stack.post(body(stream=True)))
        row = page.locator("#live tbody tr")
        await expect(row.locator(".tag")).to_have_text("prefill")
        await expect(row.locator("td").nth(1)).to_have_text("acme")
        await expect(page.locator("#total-live")).to_have_text("1")
        go_on[0].set()
        await expect(row.locator(".tag")).to_have_text("decoding")
        await expect(row.locator("td").nth(7)).to_have_text(str(len("Hello")))
        go_on[1].set()
        await asking
        await expect(row).to_have_count(0)
        recent = page.locator("#recent tbody tr")
        await expect(recent.locator(".tag")).to_have_text("200")
        await expect(recent.locator("td").nth(5)).to_have_text("stop")
        (ended,) = (await stack.admin("recent"))["requests"]
        await expect(recent.locator("td").nth(1)).to_have_attribute("title", ended["id"])


async def test_workers_are_shown_and_one_that_vanishes_turns_red(page: Page) -> None:
    async with running(ScriptedWorker("w0"), ScriptedWorker("w1")) as stack:
        await sign_in(page, stack)
        rows = page.locator("#workers tbody tr")
        await expect(rows).to_have_count(2)
        await expect(rows.first.locator(".tag").first).to_have_text("ready")
        await expect(rows.first.locator(".tag")).to_have_text(["ready", "live", "closed", "trusted"])
        await stack.workers[0].kill()
        await expect(rows.first.locator(".tag").first).to_have_text("suspect: unreachable")
        await expect(rows.last.locator(".tag").first).to_have_text("ready")


async def test_a_worker_where_requests_keep_failing_is_shown_with_its_circuit(page: Page) -> None:
    async with running() as stack:
        stack.workers[0].scripts.extend(Script(drop_after=-1) for _ in range(TRIP_FAILURES))
        for _ in range(TRIP_FAILURES):
            await stack.serving()
            await stack.post(body())
        await sign_in(page, stack)
        circuit = page.locator("#workers tbody tr .tag").nth(2)
        await expect(circuit).to_have_text("half-open")  # once it has been open for a second, until somebody asks
        await expect(circuit).to_have_attribute("data-tone", "warn")
        await stack.post(body())
        await expect(circuit).to_have_text("closed")
        await expect(circuit).to_have_attribute("data-tone", "good")


async def test_a_worker_whose_predictions_are_wrong_again_and_again_is_shown_as_suspended(page: Page) -> None:
    async with running() as stack:
        worker = stack.workers[0]
        await sign_in(page, stack)
        predictions = page.locator("#workers tbody tr .tag").nth(3)
        for suspensions, verdict in ((1, "trusted"), (2, "suspended")):  # a new snapshot brings it back, once
            worker.default = Script()
            await stack.post(body())
            await stack.indexed("w0", len(worker.requests[0].tokens) // 16)
            worker.forget()  # without a word to anybody
            worker.default = Script(store=False)
            for _ in range(ENOUGH):
                await stack.post(body())
            await stack.shows("w0", parity_suspensions=suspensions, parity=verdict, index_blocks=0)
        await expect(predictions).to_have_text("suspended")
        await expect(predictions).to_have_attribute("data-tone", "bad")


async def test_the_key_is_kept_for_the_tab_and_forgotten_on_signing_out(page: Page) -> None:
    async with running() as stack:
        await sign_in(page, stack)
        await expect(page.locator("#figures")).to_be_visible()
        await page.reload()
        await expect(page.locator("#figures")).to_be_visible()
        assert await page.evaluate("localStorage.length") == 0
        assert await page.evaluate("document.cookie") == ""
        await page.get_by_role("button", name="Sign out").click()
        await expect(page.locator("#sign-in")).to_be_visible()
        assert await page.evaluate("sessionStorage.length") == 0
        another = await page.context.new_page()
        await another.goto(f"{stack.url}/admin")
        await expect(another.locator("#sign-in")).to_be_visible()


async def test_figures_that_come_after_signing_out_do_not_make_the_page_live_again(page: Page) -> None:
    async with running() as stack:
        await sign_in(page, stack)
        await expect(page.locator("#status")).to_have_text("Live")
        go_on = asyncio.Event()

        async def late(route: Route) -> None:
            await go_on.wait()
            await route.continue_()

        async with page.expect_request("**/admin/api/recent"):
            await page.route("**/admin/api/*", late)
        await page.get_by_role("button", name="Sign out").click()
        async with page.expect_response("**/admin/api/recent"):
            go_on.set()
        await page.wait_for_load_state("networkidle")
        await expect(page.locator("#status")).to_have_text("Signed out")
        await expect(page.locator("#sign-in-error")).to_be_empty()


async def test_a_gateway_that_goes_away_is_said_and_the_figures_stay(page: Page) -> None:
    async with running() as stack:
        await traffic(stack)
        await sign_in(page, stack)
        await expect(page.locator("#rates tbody tr")).to_have_count(1)
        await page.route("**/admin/api/*", lambda route: route.abort())
        await expect(page.locator("#status")).to_have_text("Connection lost, retrying")
        await expect(page.locator("#live-error")).to_have_text("The gateway does not answer. Retrying each second.")
        await expect(page.locator("#rates tbody tr")).to_have_count(1)
        await page.unroute("**/admin/api/*")
        await expect(page.locator("#status")).to_have_text("Live")
        await expect(page.locator("#live-error")).to_be_empty()


async def test_nothing_a_client_sent_is_on_the_page(page: Page) -> None:
    async with running() as stack:
        await traffic(stack)
        await stack.post(body(model="<img src=x onerror=alert(1)>"))
        await sign_in(page, stack)
        await expect(page.locator("#recent tbody tr")).to_have_count(3)
        text = await page.content()
        assert SAID not in text
        assert "onerror" not in text
        assert stack.keys.admin not in text


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_text_can_be_read_in_both_schemes(page: Page, scheme: Any) -> None:
    await page.emulate_media(color_scheme=scheme)
    async with running() as stack:
        await traffic(stack)
        await sign_in(page, stack)
        await expect(page.locator("#rates tbody tr")).to_have_count(1)
        for place in ("#rates td", "#rates th", "#total-rate", ".hint", "#misses td", "#status", "#recent .tag"):
            assert (place, await contrast(page, place) >= 4.5) == (place, True)


async def contrast(page: Page, place: str) -> float:
    """WCAG 2 contrast ratio of an element's text against what is painted behind it."""
    ratio: float = await page.locator(place).first.evaluate("""element => {
        const channels = colour => colour.match(/[\\d.]+/g).map(Number);
        const light = ([r, g, b]) => [r, g, b]
            .map(value => value / 255)
            .map(value => value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4)
            .reduce((sum, value, index) => sum + value * [0.2126, 0.7152, 0.0722][index], 0);
        let behind = element;
        while (behind.parentElement && (channels(getComputedStyle(behind).backgroundColor)[3] ?? 1) === 0)
            behind = behind.parentElement;
        const pair = [getComputedStyle(element).color, getComputedStyle(behind).backgroundColor]
            .map(colour => light(channels(colour))).sort((a, b) => b - a);
        return (pair[0] + 0.05) / (pair[1] + 0.05);
    }""")
    return ratio
