"""The operator's side of retention policies: one tenant's is read, put and cleared."""

from typing import Literal

import msgspec
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from gateway.auth import Gate
from gateway.body import read_body
from gateway.chat.body import decode
from gateway.errors import BadRequestError, NotFoundError
from gateway.reply import send_json
from tenants import PolicyError, PolicyStore, RetentionPolicy, TenantError, now_ms

BODY_BYTES = 4096


class PolicyBody(msgspec.Struct, frozen=True):
    """What is put; see RetentionPolicy."""

    priority: int
    ttl_seconds: int
    part: Literal["system", "conversation"] = "conversation"


class PolicyReply(msgspec.Struct, frozen=True):
    """retention: null where the tenant has no policy."""

    tenant: str
    retention: PolicyBody | None


class Policies:
    """GET, PUT and DELETE /admin/api/tenants/{id}/retention; each is answered with what is set then.

    In force at once here, and within two seconds in every other gateway on the same database.
    """

    def __init__(self, gate: Gate, policies: PolicyStore) -> None:
        self._gate = gate
        self._policies = policies

    def routes(self) -> list[BaseRoute]:
        return [Route("/admin/api/tenants/{id}/retention", self, methods=["GET", "PUT", "DELETE"])]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._gate.admin(scope)
        tenant_id = scope["path_params"]["id"]
        try:
            if scope["method"] == "PUT":
                await self._policies.put(tenant_id, await _read(scope, receive), now_ms())
            elif scope["method"] == "DELETE":
                await self._policies.clear(tenant_id)
            policy = await self._policies.find(tenant_id)
        except TenantError:
            raise NotFoundError("There is no tenant of that id.", code="not_found") from None
        told = None if policy is None else PolicyBody(policy.priority, policy.ttl_seconds, policy.part)
        await send_json(send, PolicyReply(tenant_id, told), headers=[(b"cache-control", b"no-store")])


async def _read(scope: Scope, receive: Receive) -> RetentionPolicy:
    """Raises BadRequestError naming the field."""
    body = decode(await read_body(scope, receive, BODY_BYTES), PolicyBody)
    try:
        return RetentionPolicy(body.priority, body.ttl_seconds, body.part)
    except PolicyError as error:
        raise BadRequestError(error.text, param=error.field, code="out_of_range") from None
