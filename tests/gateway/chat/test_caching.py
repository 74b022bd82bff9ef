"""What a client may ask of its own cache."""

import json
from typing import Any

import pytest

from gateway.chat.caching import Breakpoint, CacheOptions, Retention
from gateway.chat.request import ChatRequest, parse_chat
from gateway.errors import BadRequestError


def parsed(extension: Any, **fields: Any) -> ChatRequest:
    asked = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "saltway": extension} | fields
    return parse_chat(json.dumps(asked).encode())


def test_nothing_asked_is_the_whole_tenant_stored_and_not_leased() -> None:
    assert parsed(None).cache == parsed({}).cache == CacheOptions("", True, None)
    nulls = {"namespace": None, "store": None, "retention": None}
    assert parsed(nulls).cache == CacheOptions("", True, None)


def test_a_lease_is_taken_as_it_is_asked() -> None:
    asked = {"store": False, "retention": {"priority": 80, "ttl_seconds": 2.5, "session": "s"}}
    assert parsed(asked).cache == CacheOptions("", False, Retention(80, 2.5, "s"))
    assert parsed({"retention": {"priority": 0, "ttl_seconds": 0}}).cache.retention == Retention(0, 0, "")


@pytest.mark.parametrize(
    ("extension", "param"),
    [
        ({"namespace": "x" * 257}, "saltway.namespace"),
        ({"store": "no"}, "saltway.store"),
        ({"retention": {"priority": 101, "ttl_seconds": 1}}, "saltway.retention.priority"),
        ({"retention": {"priority": 1, "ttl_seconds": -1}}, "saltway.retention.ttl_seconds"),
        ({"retention": {"priority": 1, "ttl_seconds": 1, "session": "x" * 257}}, "saltway.retention.session"),
    ],
)
def test_what_is_wrong_is_named(extension: Any, param: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        parsed(extension)
    assert caught.value.param == param


MARK = {"prompt_cache_breakpoint": {"mode": "explicit"}}
MARKED: list[Any] = [
    {"role": "system", "content": [{"type": "text", "text": "Be brief."} | MARK]},
    {"role": "user", "content": [{"type": "text", "text": "A book"}, {"type": "text", "text": "Twice"} | MARK]},
    {"role": "user", "content": [{"type": "text", "text": "And?", "prompt_cache_breakpoint": None}]},
]


@pytest.mark.parametrize(
    ("fields", "lease"),
    [
        ({}, Retention(60, 1800, "", "openai", Breakpoint(1, len("A book\nTwice")))),
        (
            {"messages": MARKED[:1], "prompt_cache_options": {"mode": "explicit", "ttl": "1h"}},
            Retention(60, 3600, "", "openai", Breakpoint(0, len("Be brief."))),
        ),
        ({"prompt_cache_options": {"mode": "implicit"}}, Retention(60, 1800, "", "openai")),
        ({"prompt_cache_retention": "24h"}, Retention(60, 86_400, "", "openai")),
        ({"messages": MARKED[2:], "prompt_cache_options": {"mode": "explicit"}}, None),
        ({"saltway": {"store": False}}, None),
        ({"saltway": {"retention": {"priority": 1, "ttl_seconds": 2}}}, Retention(1, 2)),
    ],
)
def test_the_last_breakpoint_ends_a_lease_where_all_is_not_kept_anyway(
    fields: dict[str, Any], lease: Retention | None
) -> None:
    assert parsed(None, **{"messages": MARKED} | fields).cache.retention == lease


def test_a_breakpoint_of_another_mode_is_named() -> None:
    part = {"type": "text", "text": "Be brief.", "prompt_cache_breakpoint": {"mode": "implicit"}}
    with pytest.raises(BadRequestError) as caught:
        parsed(None, messages=[{"role": "user", "content": [part]}])
    assert (caught.value.param or "").startswith("messages[")
    assert (caught.value.param or "").endswith("prompt_cache_breakpoint.mode")


@pytest.mark.parametrize(
    ("fields", "seconds"),
    [
        ({"prompt_cache_retention": "24h"}, 86_400),
        ({"prompt_cache_retention": "in_memory"}, 600),
        ({"prompt_cache_retention": "in-memory"}, 600),
        ({"prompt_cache_options": {}}, 1800),
        ({"prompt_cache_options": {"mode": "implicit", "ttl": None}}, 1800),
        ({"prompt_cache_options": {"mode": "implicit", "ttl": "90s"}}, 90),
        ({"prompt_cache_options": {"ttl": "2h"}, "prompt_cache_retention": None}, 7200),
    ],
)
def test_the_prompt_cache_fields_of_openai_ask_for_a_lease(fields: dict[str, Any], seconds: int) -> None:
    assert parsed(None, **fields).cache.retention == Retention(60, seconds, "", "openai")


@pytest.mark.parametrize(
    "fields", [{}, {"prompt_cache_key": "k"}, {"prompt_cache_options": {"mode": "explicit", "ttl": "30m"}}]
)
def test_a_key_or_breakpoints_alone_ask_for_none(fields: dict[str, Any]) -> None:
    explicit = "prompt_cache_options" in fields
    assert parsed(None, **fields).cache == CacheOptions(explicit=explicit)


def test_our_own_retention_wins_and_what_is_not_stored_is_not_leased() -> None:
    asked = {"retention": {"priority": 1, "ttl_seconds": 2}}
    assert parsed(asked, prompt_cache_retention="24h").cache.retention == Retention(1, 2)
    assert parsed({"store": False}, prompt_cache_retention="24h").cache == CacheOptions(store=False)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt_cache_retention": "forever"}, "prompt_cache_retention"),
        ({"prompt_cache_retention": 24}, "prompt_cache_retention"),
        ({"prompt_cache_retention": "24h", "prompt_cache_options": {}}, "prompt_cache_retention"),
        ({"prompt_cache_options": {"mode": "both"}}, "prompt_cache_options.mode"),
        ({"prompt_cache_options": {"ttl": "soon"}}, "prompt_cache_options.ttl"),
        ({"prompt_cache_options": {"ttl": "30m "}}, "prompt_cache_options.ttl"),
        ({"prompt_cache_options": {"mode": "explicit", "ttl": "8d"}}, "prompt_cache_options.ttl"),
        ({"prompt_cache_options": {"ttl": "169h"}}, "prompt_cache_options.ttl"),
        ({"prompt_cache_options": {"ttl": "-1s"}}, "prompt_cache_options.ttl"),
    ],
)
def test_a_wrong_prompt_cache_field_is_named_even_where_ours_wins(fields: dict[str, Any], param: str) -> None:
    for extension in (None, {"retention": {"priority": 1, "ttl_seconds": 2}}, {"store": False}):
        with pytest.raises(BadRequestError) as caught:
            parsed(extension, **fields)
        assert caught.value.param == param
