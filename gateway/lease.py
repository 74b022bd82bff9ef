"""The lease that a request takes: what its client asks for, or else what the operator has set for its tenant."""

from dataclasses import dataclass
from typing import Literal

from gateway.chat.caching import CacheOptions
from gateway.worker_wire import Retention, RetentionRange
from tenants import RetentionPolicy


@dataclass(frozen=True, slots=True)
class Lease:
    """Taken when the request ends, on its conversation.

    source    who asked: our extension, OpenAI's prompt cache fields, or the tenant's policy
    session   the next lease of the same session takes the place of this one; "" stands alone
    tokens    that it covers, from the beginning of the prompt on; None for all, the answer included
    """

    source: Literal["request", "openai", "policy"]
    priority: int
    ttl_seconds: float
    session: str = ""
    tokens: int | None = None


def wants_policy(cache: CacheOptions) -> bool:
    """Whether the client says nothing of what to keep. What is not stored cannot be kept."""
    return cache.store and cache.retention is None and not cache.explicit


def asked(cache: CacheOptions, session: str, tokens: int | None) -> Lease | None:
    """What the client asks for, on so many tokens. session: of the lease that the turn before has taken, if it did."""
    spec = cache.retention
    if spec is None:
        return None
    return Lease(spec.source, spec.priority, spec.ttl_seconds, spec.session or session, tokens)


def by_policy(policy: RetentionPolicy, session: str, system_tokens: int, template: str) -> Lease | None:
    """What the operator has set.

    session         of this conversation
    system_tokens   of the system prompt with its tools, which all conversations of a template share: one lease for all
    """
    if policy.part == "conversation":
        return Lease("policy", policy.priority, policy.ttl_seconds, session)
    if not system_tokens:
        return None
    return Lease("policy", policy.priority, policy.ttl_seconds, f"template.{template}", system_tokens)


def on_the_wire(lease: Lease | None, session: str) -> Retention | None:
    """As a worker takes it; a lease on nothing where this turn only ends the one of the last, of `session`."""
    if lease is not None:
        terms = RetentionRange(lease.priority, round(lease.ttl_seconds * 1000), 0, lease.tokens)
        return Retention([terms], lease.session)
    return Retention([RetentionRange(0, 0, 0, 0)], session) if session else None
