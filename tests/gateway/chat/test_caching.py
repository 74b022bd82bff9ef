"""What a client may ask of its own cache."""

import json
from typing import Any

import pytest

from gateway.chat.caching import CacheOptions, Retention
from gateway.chat.request import ChatRequest, parse_chat
from gateway.errors import BadRequestError


def parsed(extension: Any) -> ChatRequest:
    asked = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "saltway": extension}
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
