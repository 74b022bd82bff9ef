"""Why a prompt token was computed though it might have been reused: one reason for each, and they add up.

Reasons are given from the first token on, as depths: each reaches as far as what it speaks of was a prefix of this
prompt, and takes the tokens that no earlier row has taken. prompt = cached + the sum over all reasons.

| order | reason             | the tokens up to                                                                     |
|-------|--------------------|--------------------------------------------------------------------------------------|
| 0     | (cached)           | what the worker says it reused                                                       |
| 1     | `parity`           | what placement predicted on the chosen worker, confirmed by its events               |
| 2     | `routed_away`      | what the ready worker that holds most of this prompt holds                           |
| 3     | `worker_lost`      | what a worker holds that takes no requests now: silent, failed, draining, mismatched |
|       |                    | ... or all, where one failed in the midst of this answer                             |
| 4     | `worker_lost`      | blocks whose last departure was with a process that ended or restarted               |
|       | `evicted`          | ... was from a device pool, or in a cleared cache                                    |
|       | `tier_dropped`     | ... was from host or disk, which had the last copy                                   |
| 5     | `evicted`          | an earlier prompt of the tenant that was stored; how its blocks left is not known    |
|       | (as row 4)         | ... or blocks before them left: without its prefix a block is lost too               |
| 6     | `not_stored`       | an earlier prompt that was sent with store=false, failed, or is still being computed |
| 7     | `salt_rotated`     | an earlier prompt that was stored under an earlier epoch of the tenant's salt        |
| 8     | `diverged_*`       | not a depth: tokens of segments that an earlier prompt has too, behind a change      |
| 9     | `first_seen`       | the last full block that can be reused: everything else there                        |
| 10    | `below_block`      | the end: the tail below a full block, and the block of the last token, which is      |
|       |                    | always computed: (prompt - 1) // block * block tokens can be reused in blocks        |

`diverged_volatile` is a change of dates, times, ids or other values that differ each time, in whatever part; other
changes are `diverged_tools`, `diverged_system` or `diverged_history`, by the part of the prompt in which they begin.

`tenant_isolated` tokens were sent before by another tenant. They are counted for all tenants of a model together and
for nobody else: to the tenant, and in everything kept of its request, they are `first_seen`.
"""

import enum
from dataclasses import dataclass, field
from typing import Self


class Reason(enum.StrEnum):
    PARITY = "parity"
    ROUTED_AWAY = "routed_away"
    WORKER_LOST = "worker_lost"
    EVICTED = "evicted"
    TIER_DROPPED = "tier_dropped"
    NOT_STORED = "not_stored"
    SALT_ROTATED = "salt_rotated"
    DIVERGED_TOOLS = "diverged_tools"
    DIVERGED_SYSTEM = "diverged_system"
    DIVERGED_HISTORY = "diverged_history"
    DIVERGED_VOLATILE = "diverged_volatile"
    FIRST_SEEN = "first_seen"
    BELOW_BLOCK = "below_block"


class Part(enum.StrEnum):
    """Where in a prompt a segment stands."""

    SYSTEM = "system"
    TOOLS = "tools"
    HISTORY = "history"
    FRAME = "frame"  # the template's own words, the same in every prompt: no evidence of anything


class Kind(enum.StrEnum):
    """What kind of change made two prompts differ."""

    ORDER = "order"
    WHITESPACE = "whitespace"
    KEY_ORDER = "key_order"
    VOLATILE = "volatile"
    ADDED = "added"
    REMOVED = "removed"
    EDIT = "edit"


_BY_PART = {
    Part.SYSTEM: Reason.DIVERGED_SYSTEM,
    Part.TOOLS: Reason.DIVERGED_TOOLS,
    Part.HISTORY: Reason.DIVERGED_HISTORY,
}


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where a prompt left the one before it that it has most in common with.

    part    of the prompt in which the change begins; never FRAME
    index   which segment of that part, from 0: which tool, which message of the history
    token   of the prompt: the change is not before it, and less than a block after it
    tokens  that were sent before and are computed again behind it
    """

    part: Part
    kind: Kind
    index: int
    token: int
    tokens: int = 0

    @property
    def reason(self) -> Reason:
        return Reason.DIVERGED_VOLATILE if self.kind is Kind.VOLATILE else _BY_PART[self.part]


@dataclass(slots=True)
class Stairs:
    """Tokens given to reasons, from `at` on up to the end of the prompt; what has a reason keeps it."""

    at: int
    misses: dict[Reason, int] = field(default_factory=dict)

    def to(self, depth: int, reason: Reason) -> Self:
        """Everything up to token `depth` that has no reason yet."""
        self.add(reason, depth - self.at)
        self.at = max(self.at, depth)
        return self

    def add(self, reason: Reason, tokens: int) -> None:
        if tokens > 0:
            self.misses[reason] = self.misses.get(reason, 0) + tokens
