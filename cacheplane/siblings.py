"""Our own fresh decisions, for bursts of requests with one prefix."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, NamedTuple

from cacheplane.prefixtree import PrefixTree

SIBLING_SECONDS: Final = 10.0  # long enough for a prefill on a slow worker to end and its events to arrive
MAX_DECISIONS: Final = 1024


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

    Bound: the last `max_decisions` decisions, none older than `lifetime` seconds.
    """

    def __init__(self, lifetime: float = SIBLING_SECONDS, max_decisions: int = MAX_DECISIONS) -> None:
        self._lifetime, self._max_decisions = lifetime, max_decisions
        self._sent: OrderedDict[int, _Sent] = OrderedDict()
        self._tree = PrefixTree()

    def __len__(self) -> int:
        return len(self._sent)

    def remember(self, decision: int, worker_id: str, hashes: Sequence[bytes], now: float) -> None:
        self._sent[decision] = _Sent(now, worker_id, hashes)
        self._tree.add(worker_id, hashes)
        if len(self._sent) > self._max_decisions:
            self.forget(next(iter(self._sent)))

    def forget(self, decision: int) -> None:
        """The decision came to nothing: its worker never got the prompt, or lost it."""
        if (sent := self._sent.pop(decision, None)) is not None:
            self._tree.remove(sent.worker_id, sent.hashes)

    def drop(self, worker_id: str) -> None:
        """The worker is gone, with all that it was sent: another process under its name has none of it."""
        for decision in [decision for decision, sent in self._sent.items() if sent.worker_id == worker_id]:
            self.forget(decision)

    def match(self, hashes: Sequence[bytes], now: float) -> dict[str, int]:
        """Blocks from block 0 on that each worker was sent lately."""
        while self._sent:
            decision, oldest = next(iter(self._sent.items()))
            if now - oldest.at < self._lifetime:
                break
            self.forget(decision)
        return self._tree.match(hashes)
