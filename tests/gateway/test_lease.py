"""Whose word counts for a lease, and how it goes to a worker."""

import pytest

from gateway.chat.caching import CacheOptions, Retention
from gateway.lease import Lease, asked, by_policy, on_the_wire, wants_policy
from gateway.worker_wire import Retention as OnTheWire
from gateway.worker_wire import RetentionRange
from tenants import RetentionPolicy

OWN = Retention(80, 2.5, "mine")


@pytest.mark.parametrize(
    ("cache", "wanted"),
    [
        (CacheOptions(), True),
        (CacheOptions(namespace="drafts"), True),
        (CacheOptions(retention=OWN), False),
        (CacheOptions(explicit=True), False),
        (CacheOptions(store=False), False),
    ],
)
def test_a_policy_is_for_who_says_nothing_and_stores(cache: CacheOptions, wanted: bool) -> None:
    assert wants_policy(cache) == wanted


def test_a_client_that_names_no_session_goes_on_with_that_of_the_turn_before() -> None:
    assert asked(CacheOptions(), "before", None) is None
    assert asked(CacheOptions(retention=OWN), "before", None) == Lease("request", 80, 2.5, "mine")
    unnamed = CacheOptions(retention=Retention(60, 1800, source="openai"))
    assert asked(unnamed, "before", 48) == Lease("openai", 60, 1800, "before", 48)


def test_a_policy_covers_the_conversation_or_what_all_of_a_template_share() -> None:
    whole, system = RetentionPolicy(60, 3600), RetentionPolicy(60, 3600, "system")
    assert by_policy(whole, "req_1", 100, "0a1b") == Lease("policy", 60, 3600, "req_1")
    assert by_policy(system, "req_1", 100, "0a1b") == Lease("policy", 60, 3600, "template.0a1b", 100)
    assert by_policy(system, "req_1", 0, "0a1b") is None


def test_a_worker_is_told_milliseconds_and_what_ends() -> None:
    lease = Lease("policy", 60, 2.5, "mine", 100)
    assert on_the_wire(lease, "before") == OnTheWire([RetentionRange(60, 2500, 0, 100)], "mine")
    assert on_the_wire(None, "before") == OnTheWire([RetentionRange(0, 0, 0, 0)], "before")
    assert on_the_wire(None, "") is None
