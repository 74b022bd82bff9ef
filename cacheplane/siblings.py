"""Our own fresh decisions, for bursts of requests with one prefix."""

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, NamedTuple

SIBLING_SECONDS: Final = 10.0  # long enough for a prefill on a slow worker to end and its events to arrive
MAX_DECISIONS: Final = 256


class _Sent(NamedTuple):
    """Where a chain was sent, and when (seconds)."""

    at: float
    worker_id: str
    hashes: Sequence[bytes]


class Siblings:
    """Which worker was just sent a prompt with this prefix, though its blocks are not confirmed yet.

    The first of a burst is still being computed when the others come, and no event tells of it. A worker that
    was chosen is expected to hold the chain soon. This is a guess with a short life: it weighs in the cost, and is
    never written to the index nor reported as predicted reuse.

    Bound: the last `max_decisions` decisions, none older than `lifetime` seconds. Nothing is stored per block.
    """

    def __init__(self, lifetime: float = SIBLING_SECONDS, max_decisions: int = MAX_DECISIONS) -> None:
        self._lifetime, self._max_decisions = lifetime, max_decisions
        self._sent: OrderedDict[int, _Sent] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sent)

    def remember(self, decision: int, worker_id: str, hashes: Sequence[bytes], now: float) -> None:
        self._sent[decision] = _Sent(now, worker_id, hashes)
        while len(self._sent) > self._max_decisions:
            self._sent.popitem(last=False)

    def forget(self, decision: int) -> None:
        """The decision came to nothing: its worker never got the prompt, or lost it."""
        self._sent.pop(decision, None)

    def match(self, hashes: Sequence[bytes], now: float) -> dict[str, int]:
        """Blocks from block 0 on that each worker was sent lately."""
        self._expire(now)
        overlap: dict[str, int] = {}
        for _, worker_id, theirs in self._sent.values():
            if depth := _shared(theirs, hashes):
                overlap[worker_id] = max(depth, overlap.get(worker_id, 0))
        return overlap

    def _expire(self, now: float) -> None:
        while self._sent and now - next(iter(self._sent.values())).at >= self._lifetime:
            self._sent.popitem(last=False)


def _shared(left: Sequence[bytes], right: Sequence[bytes]) -> int:
    """Leading blocks that two chains share. A hash commits to all before it, so the border can be bisected."""
    if not left or not right or left[0] != right[0]:
        return 0
    return bisect_left(range(min(len(left), len(right))), True, key=lambda block: left[block] != right[block])
