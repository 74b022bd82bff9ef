"""Miss attribution: why each prompt token that was not reused was not.

owns            the reasons and how they add up, sketches of recent prompts, what became of blocks that left
does not own    HTTP, the ledger, prompt text (it is digested and dropped), token ids, placement
front door      Departures
"""

from cacheplane.attribution.departures import Cause, Departures

__all__ = ["Cause", "Departures"]
