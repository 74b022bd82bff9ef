"""The gate for JSON Schemas: what cannot be enforced is refused, by keyword and path, before any work is queued.

owns            size bounds, local references, what the grammar engine can enforce, bounds on open strings and lists
does not own    which schema applies where (gateway.grammar), tokens
front door      SchemaGate, Bounds, check_output
"""

from gateway.schemas.bounds import Bounds
from gateway.schemas.gate import SchemaGate
from gateway.schemas.output import check_output

__all__ = ["Bounds", "SchemaGate", "check_output"]
