"""Tenants: who may call, under which salt epoch, and what each request used.

owns            the schema; tenants, API keys, salt epochs, retention policies, usage ledger, reports of reuse and
                misses
does not own    HTTP, prompts, the master secret, cache identity, Alembic history
front door      Database, KeyStore, SaltStore, PolicyStore, Ledger, LedgerRow, hit_rates, misses_by, find_request

Every time in this room is an int: milliseconds since the Unix epoch, UTC.
"""

from tenants.database import Database, StoreUnavailableError, now_ms
from tenants.keys import KeyRejectedError, KeyStore, Principal
from tenants.ledger import Ledger
from tenants.reports import GROUPS, HitRate, MissSums, find_request, hit_rates, misses_by
from tenants.retention import PARTS, PolicyError, PolicyStore, RetentionPolicy
from tenants.salts import SaltStore
from tenants.schema import MISS, MISSES, ApiKey, LedgerRow, RetentionRow, SaltEpoch, Tenant
from tenants.tenant import TenantError

__all__ = [
    "GROUPS",
    "MISS",
    "MISSES",
    "PARTS",
    "ApiKey",
    "Database",
    "HitRate",
    "KeyRejectedError",
    "KeyStore",
    "Ledger",
    "LedgerRow",
    "MissSums",
    "PolicyError",
    "PolicyStore",
    "Principal",
    "RetentionPolicy",
    "RetentionRow",
    "SaltEpoch",
    "SaltStore",
    "StoreUnavailableError",
    "Tenant",
    "TenantError",
    "find_request",
    "hit_rates",
    "misses_by",
    "now_ms",
]
