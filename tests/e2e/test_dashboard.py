"""The admin page of the running stack, in a real browser."""

import re
from pathlib import Path
from typing import Any

import httpx2
from openai import OpenAI
from playwright.sync_api import expect, sync_playwright

from bench.stack import Stack
from tests.browser.conftest import CHROMIUM, PATIENCE_MS, QUIET
from tests.e2e.workers import eventually

MODEL = "smollm2"
QUESTION: list[Any] = [{"role": "user", "content": "Which words may a dashboard never show? " * 6}]


def test_it_shows_hit_rates_from_real_traffic(acme: OpenAI, stack: Stack, admin: httpx2.Client, tmp_path: Path) -> None:
    for _ in range(3):
        acme.chat.completions.create(model=MODEL, messages=QUESTION, max_tokens=2)
    assert eventually(lambda: _cached(admin, "acme") > 0)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(f"{stack.url}/admin")
        page.get_by_label(re.compile("key", re.IGNORECASE)).fill(stack.keys["SALTWAY_ADMIN_KEY"])
        page.keyboard.press("Enter")
        expect(page.get_by_text("acme").first).to_be_visible(timeout=PATIENCE_MS)
        expect(page.get_by_text("w0").first).to_be_visible(timeout=PATIENCE_MS)
        expect(page.get_by_text(re.compile(r"\d+(\.\d+)?\s?%")).first).to_be_visible(timeout=PATIENCE_MS)
        assert "never show" not in page.content()
        page.screenshot(path=tmp_path / "dashboard.png", full_page=True)
        browser.close()


def _cached(admin: httpx2.Client, tenant: str) -> int:
    rows = admin.get("/admin/api/hit-rates", params={"window": "15m"}).raise_for_status().json()["tenants"]
    return sum(row["cached_tokens"] for row in rows if row["tenant"] == tenant)
