"""Bad input: the right 4xx, a message that names the field, and a process that stays up."""

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from bench.stack import Stack
from tests.e2e.workers import eventually

CHAT = "/v1/chat/completions"
GOOD: dict[str, Any] = {"model": "smollm2", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}


@pytest.fixture
def key(stack: Stack) -> dict[str, str]:
    return {"Authorization": f"Bearer {stack.keys['SALTWAY_KEY_ACME']}"}


@pytest.fixture(autouse=True)
def still_up(raw: httpx2.Client, key: dict[str, str]) -> Iterator[None]:
    """After each of these, the next request is served."""
    yield
    assert raw.post(CHAT, json=GOOD, headers=key).status_code == 200


def _tool(parameters: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "f", "parameters": parameters}}


FIELDS: list[tuple[str, dict[str, Any], str]] = [
    ("wrong type", {"temperature": "hot"}, "temperature"),
    ("out of range", {"temperature": 3}, "temperature"),
    ("n too small", {"n": 0}, "n"),
    ("n too large", {"n": 1000}, "n"),
    ("no messages", {"messages": []}, "messages"),
    ("messages not a list", {"messages": "hi"}, "messages"),
    ("unknown role", {"messages": [{"role": "king", "content": "hi"}]}, "messages[0].role"),
    ("content of a wrong type", {"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
    ("a lone surrogate", {"messages": [{"role": "user", "content": "\ud800"}]}, "messages[0].content"),
    ("too many stops", {"stop": ["a", "b", "c", "d", "e"]}, "stop"),
    ("a seed beyond 64 bits", {"seed": 2**64}, "seed"),
    ("too many alternatives", {"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    (
        "no such tool",
        {"tools": [_tool({})], "tool_choice": {"type": "function", "function": {"name": "g"}}},
        "tool_choice",
    ),
    (
        "an unenforceable keyword",
        {"tools": [_tool({"properties": {"x": {"not": {}}}})]},
        "tools[0].function.parameters.properties.x.not",
    ),
    ("a remote reference", {"tools": [_tool({"$ref": "http://127.0.0.1:9/x"})]}, "tools[0].function.parameters.$ref"),
    (
        "an unenforceable format",
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "x", "schema": {"type": "array", "uniqueItems": True}},
            }
        },
        "response_format.json_schema.schema.uniqueItems",
    ),
]


@pytest.mark.parametrize(("change", "param"), [case[1:] for case in FIELDS], ids=[case[0] for case in FIELDS])
def test_a_bad_field_is_named(raw: httpx2.Client, key: dict[str, str], change: dict[str, Any], param: str) -> None:
    reply = raw.post(CHAT, content=json.dumps(GOOD | change).encode(), headers=key)
    error = reply.json()["error"]
    assert reply.status_code == 400
    assert error["param"] == param
    assert error["type"] == "invalid_request_error"
    assert error["message"]


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"5", b"\xff\xfe", b'{"model":', b"[" * 5000, b'{"a":' * 3000])
def test_malformed_json_is_refused(raw: httpx2.Client, key: dict[str, str], body: bytes) -> None:
    reply = raw.post(CHAT, content=body, headers=key)
    assert reply.status_code == 400
    assert reply.json()["error"]["message"]


def test_no_key_and_a_wrong_key_are_refused_alike(raw: httpx2.Client) -> None:
    for headers in ({}, {"Authorization": "Bearer sk-sw-nope"}, {"Authorization": "Basic abc"}):
        reply = raw.post(CHAT, json=GOOD, headers=headers)
        assert reply.status_code == 401
        assert reply.json()["error"]["code"] == "invalid_api_key"
        assert "nope" not in reply.text


def test_a_revoked_key_is_refused_soon(raw: httpx2.Client, stack: Stack) -> None:
    fresh = _saltway(stack, "key", "create", "acme").strip()
    headers = {"Authorization": f"Bearer {fresh}"}
    assert raw.post(CHAT, json=GOOD, headers=headers).status_code == 200
    _saltway(stack, "key", "revoke", fresh.removeprefix("sk-sw-").split("-", 1)[0])
    assert eventually(lambda: raw.post(CHAT, json=GOOD, headers=headers).status_code == 401)


def test_an_unknown_model_is_not_found(raw: httpx2.Client, key: dict[str, str]) -> None:
    reply = raw.post(CHAT, json=GOOD | {"model": "gpt-9"}, headers=key)
    assert reply.status_code == 404
    assert reply.json()["error"]["param"] == "model"
    assert reply.json()["error"]["code"] == "model_not_found"


def test_a_prompt_beyond_the_context_is_refused(raw: httpx2.Client, key: dict[str, str]) -> None:
    reply = raw.post(CHAT, json=GOOD | {"messages": [{"role": "user", "content": "word " * 9000}]}, headers=key)
    assert reply.status_code == 400
    assert reply.json()["error"]["code"] == "context_length_exceeded"
    assert reply.json()["error"]["param"] == "messages"


def test_a_body_of_twenty_mebibytes_is_refused(raw: httpx2.Client, key: dict[str, str]) -> None:
    body = json.dumps(GOOD | {"messages": [{"role": "user", "content": "x" * (20 << 20)}]}).encode()
    assert raw.post(CHAT, content=body, headers=key).status_code == 413

    def pieces() -> Iterator[bytes]:
        yield from (body[at : at + 65536] for at in range(0, len(body), 65536))

    try:
        chunked = raw.post(CHAT, content=pieces(), headers=key)
    except (httpx2.WriteError, httpx2.RemoteProtocolError):
        return  # refused while we were still sending
    assert chunked.status_code == 413


def test_the_host_header_cannot_move_the_path(raw: httpx2.Client) -> None:
    reply = raw.post(CHAT, json=GOOD, headers={"Host": "x/health?"})
    assert reply.status_code in (400, 401)


def _saltway(stack: Stack, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "gateway", *arguments],
        env={"PATH": "/usr/bin:/bin", "SALTWAY_HOME": str(stack.home)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout
