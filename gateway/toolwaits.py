"""How long the tools of a tenant take, learned from when their calls were made and when the results came.

In memory of one process: it orders what is evicted first, and nothing is wrong when it is forgotten.
"""

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from gateway.bounded import keep_newest
from gateway.tools.hermes import CallStart

MAX_TENANTS = 256  # whoever made no call for longest goes
MAX_CALLS = 1000  # of a tenant; the oldest goes
MAX_TOOLS = 100  # of a tenant; the one that was not waited for for longest goes
DEFAULT_SECONDS = 120.0
EDGES = (5.0, 7.5, 10.0, 15.0, 20.0, 30.0, 40.0, 60.0, 80.0, 120.0, 160.0, 240.0, 320.0, 480.0, 640.0, 900.0)
"""Seconds; a wait counts for the first that is no shorter, and one beyond the last for the last."""
QUANTILE = 0.95
DECAY = 0.98  # of a wait's weight at each later one, so about the last fifty count
PRIOR = 0.5  # weight of the default at the start: one quick result does not make a quick tool, ten do


class WaitEstimate:
    """What nearly all waits for one tool stay within: a decayed quantile over a histogram."""

    __slots__ = ("_weights",)

    def __init__(self) -> None:
        self._weights = [0.0] * len(EDGES)
        self._weights[EDGES.index(DEFAULT_SECONDS)] = PRIOR

    def learn(self, seconds: float) -> None:
        self._weights = [weight * DECAY for weight in self._weights]
        self._weights[min(bisect_left(EDGES, seconds), len(EDGES) - 1)] += 1.0

    @property
    def seconds(self) -> float:
        """One of EDGES."""
        wanted, seen = QUANTILE * sum(self._weights), 0.0
        for edge, weight in zip(EDGES, self._weights, strict=True):
            seen += weight
            if seen >= wanted:
                return edge
        return EDGES[-1]


@dataclass(slots=True)
class _Turn:
    """One that ended in calls: their tools, when it ended, and the session of the lease that was taken then."""

    tools: frozenset[str]
    session: str
    ended: float
    answered: bool = False


@dataclass(slots=True)
class _Tenant:
    turns: OrderedDict[str, _Turn] = field(default_factory=OrderedDict)  # by call id
    waits: OrderedDict[str, WaitEstimate] = field(default_factory=OrderedDict)  # by tool

    def wait_for(self, tool: str) -> float:
        known = self.waits.get(tool)
        return DEFAULT_SECONDS if known is None else known.seconds

    def learn(self, tools: Iterable[str], waited: float) -> None:
        """The results of all came at once, which tells of the slowest only."""
        expected = {tool: self.wait_for(tool) for tool in tools}
        slowest = max(expected.values())
        for tool in (tool for tool, seconds in expected.items() if seconds == slowest):
            self.waits.setdefault(tool, WaitEstimate()).learn(waited)
            keep_newest(self.waits, tool, MAX_TOOLS)


class ToolWaits:
    """The calls that were made and not answered yet, and what was learned from those that were.

    A call id means nothing to another tenant than the one whose reply it was in.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        """clock: monotonic, in seconds."""
        self._clock = clock
        self._tenants: OrderedDict[str, _Tenant] = OrderedDict()

    def made(self, tenant_id: str, calls: Sequence[CallStart], session: str) -> float:
        """A turn has ended in these calls. Returns the seconds within which their results are expected."""
        tenant = self._tenants.setdefault(tenant_id, _Tenant())
        keep_newest(self._tenants, tenant_id, MAX_TENANTS)
        turn = _Turn(frozenset(call.name for call in calls), session, self._clock())
        for call in calls:
            tenant.turns[call.id] = turn
            keep_newest(tenant.turns, call.id, MAX_CALLS)
        return max(tenant.wait_for(tool) for tool in turn.tools)

    def answered(self, tenant_id: str, call_ids: Iterable[str]) -> str:
        """A request brings the results of these calls. Returns the session of their turn; "" for calls not known.

        The first such request is learned from; one that is sent again, or branches off, is not.
        """
        tenant = self._tenants.get(tenant_id, _Tenant())
        turn = next((tenant.turns[call_id] for call_id in call_ids if call_id in tenant.turns), None)
        if turn is None:
            return ""
        if not turn.answered:
            turn.answered = True
            tenant.learn(turn.tools, self._clock() - turn.ended)
        return turn.session
