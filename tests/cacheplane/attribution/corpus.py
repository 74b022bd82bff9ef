"""Sixty-odd constructed cases: what happened, and the reasons that the last request must be told, all of them."""

from tests.cacheplane.attribution.changes import CHANGES
from tests.cacheplane.attribution.fates import FATES

CASES = [*CHANGES, *FATES]
