"""Who is asking: the key of a request, checked before anything else of it is read."""

from starlette.types import Scope

from gateway.errors import ForbiddenError, UnauthorizedError, UnavailableError
from tenants import KeyRejectedError, KeyStore, Principal, StoreUnavailableError, now_ms

# What a caller is told. An unknown key and one that is switched off sound alike on purpose: a guess learns nothing.
_REJECTED = {
    "unknown": "Incorrect API key provided.",
    "disabled": "Incorrect API key provided.",
    "revoked": "This API key has been revoked.",
    "expired": "This API key has expired.",
}


def presented_key(scope: Scope) -> str | None:
    """The key that a request carries, as `Authorization: Bearer KEY` or `x-api-key: KEY`; the former wins."""
    other: str | None = None
    for name, value in scope["headers"]:
        if name == b"authorization":
            scheme, _, key = value.decode("latin-1").partition(" ")
            return key.strip() if scheme.lower() == "bearer" else None
        if name == b"x-api-key":
            other = value.decode("latin-1").strip()
    return other


class Gate:
    """Turns a key into a principal. Tenants' keys open the dialects, administrators' keys open the operator's side."""

    def __init__(self, keys: KeyStore) -> None:
        self._keys = keys

    async def tenant(self, scope: Scope) -> Principal:
        """Raises UnauthorizedError, or ForbiddenError for an administrator's key."""
        principal = await self._principal(scope)
        if principal.tenant_id is None:
            raise ForbiddenError(
                "An admin key cannot be used for inference; use a tenant's key.", code="tenant_key_required"
            )
        return principal

    async def admin(self, scope: Scope) -> Principal:
        """Raises UnauthorizedError, or ForbiddenError for a tenant's key."""
        principal = await self._principal(scope)
        if principal.role != "admin":
            raise ForbiddenError("This needs an admin key.", code="admin_key_required")
        return principal

    async def _principal(self, scope: Scope) -> Principal:
        key = presented_key(scope)
        if not key:
            raise UnauthorizedError("You didn't provide an API key; send it as 'Authorization: Bearer KEY'.")
        try:
            return await self._keys.authenticate(key, now_ms())
        except KeyRejectedError as rejected:
            raise UnauthorizedError(_REJECTED[rejected.reason]) from None
        except StoreUnavailableError:
            message = "Keys cannot be checked at the moment; try again."
            raise UnavailableError(message, code="store_unavailable", headers={"retry-after": "1"}) from None
