"""What a client asks of its own cache: a division of it, to be left out of it, to be kept longer."""

import msgspec

from gateway.chat import wire
from gateway.chat.turns import short
from gateway.errors import BadRequestError

MAX_TTL_SECONDS = 7 * 24 * 3600
MAX_PRIORITY = 100


class Retention(msgspec.Struct, frozen=True):
    """A lease on the blocks of this conversation, up to the end of the answer.

    priority      0 to 100; what is not under lease has 35
    ttl_seconds   from the moment when no request uses the blocks any more
    session       the next lease of the same session takes the place of this one; "" stands alone
    """

    priority: int
    ttl_seconds: float
    session: str = ""


class CacheOptions(msgspec.Struct, frozen=True):
    """namespace: the client's own division of its tenant's cache, "" is none; store False leaves no block behind."""

    namespace: str = ""
    store: bool = True
    retention: Retention | None = None


def parse_cache(extension: wire.Extension | None) -> CacheOptions:
    """From the `saltway` object of a body. Raises BadRequestError naming the field."""
    if extension is None:
        return CacheOptions()
    return CacheOptions(
        namespace=short(extension.namespace or "", "saltway.namespace"),
        store=extension.store is not False,
        retention=None if extension.retention is None else _retention(extension.retention),
    )


def _retention(spec: wire.RetentionSpec) -> Retention:
    _within(spec.priority, MAX_PRIORITY, "saltway.retention.priority")
    _within(spec.ttl_seconds, MAX_TTL_SECONDS, "saltway.retention.ttl_seconds")
    session = short(spec.session or "", "saltway.retention.session")
    return Retention(spec.priority, spec.ttl_seconds, session)


def _within(value: float, most: int, param: str) -> None:
    if not 0 <= value <= most:
        raise BadRequestError(f"Must be between 0 and {most}.", param=param, code="out_of_range")
