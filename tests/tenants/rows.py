"""Ledger rows for tests: whole, with just the fields given that the test is about."""

from typing import Any

from tenants import LedgerRow
from tests.tenants.conftest import NOW


def row(request_id: object, **fields: Any) -> LedgerRow:
    return LedgerRow(**{"request_id": str(request_id), "created_at": NOW, "dialect": "openai", "status": 200, **fields})
