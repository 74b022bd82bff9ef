"""Leases from an operator's policy and of a client's session, until the session is over."""

from typing import Any

import httpx2
from openai import OpenAI

from bench.stack import Stack
from tests.e2e.workers import Workers, eventually

POLICY = "/admin/api/tenants/acme/retention"
QUESTION: list[Any] = [
    {"role": "system", "content": "You keep the books of a salt road. " * 8},
    {"role": "user", "content": "How many pounds came today?"},
]


def _ask(client: OpenAI, **fields: Any) -> str:
    """The id of the request, when it has ended."""
    raw = client.chat.completions.with_raw_response.create(
        model="smollm2", messages=QUESTION, max_tokens=2, temperature=0, **fields
    )
    raw.parse()
    return raw.headers["x-request-id"]


def test_a_named_session_is_kept_until_its_own_tenant_says_that_it_is_over(
    stack: Stack, acme: OpenAI, raw: httpx2.Client, workers: Workers
) -> None:
    before = workers.leased()
    _ask(acme, extra_body={"saltway": {"retention": {"priority": 80, "ttl_seconds": 600, "session": "order-42"}}})
    assert eventually(lambda: workers.leased() > before)
    kept = workers.leased()
    for key, left in (("SALTWAY_KEY_GLOBEX", kept), ("SALTWAY_KEY_ACME", before), ("SALTWAY_KEY_ACME", before)):
        answer = raw.delete("/v1/sessions/order-42", headers={"Authorization": f"Bearer {stack.keys[key]}"})
        assert (answer.status_code, answer.content) == (204, b"")
        assert workers.leased() == left


def test_a_policy_keeps_what_says_nothing_and_ends_with_the_conversation(
    stack: Stack, acme: OpenAI, admin: httpx2.Client, raw: httpx2.Client, workers: Workers
) -> None:
    before = workers.leased()
    admin.put(POLICY, json={"priority": 60, "ttl_seconds": 600}).raise_for_status()
    try:
        request_id = _ask(acme)
    finally:
        admin.delete(POLICY).raise_for_status()
    assert eventually(lambda: workers.leased() > before)
    key = stack.keys["SALTWAY_KEY_ACME"]
    raw.delete(f"/v1/sessions/{request_id}", headers={"Authorization": f"Bearer {key}"}).raise_for_status()
    assert workers.leased() == before
