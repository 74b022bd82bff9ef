"""Prompts with a common beginning that arrive together: it is computed once, by the sequence that came first."""

import math
from array import array
from dataclasses import dataclass

import numpy as np

from worker.sequence import Sequence


@dataclass(slots=True)
class _Wait:
    """A sequence waits until its leader has computed `shared` tokens, or the engine `until` prompt tokens in all."""

    leader: Sequence
    shared: int
    until: float


class Leaders:
    """Which waiting sequences better wait for a running one to compute the blocks that they begin with.

    A wait is never longer than computing those blocks oneself would take: behind a leader that comes first within the
    tag in any case it costs nothing; behind another it ends, once for all, when the engine has computed as many
    prompt tokens as were missing. Only blocks of the same namespaces are shared, so nobody waits for a stranger.
    """

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._waits: dict[Sequence, _Wait] = {}

    def make_wait(self, sequence: Sequence, running: list[Sequence], prefilled: int) -> bool:
        """Whether a waiting sequence waits on.

        running     sequences that are prefilling
        prefilled   prompt tokens that the engine has computed so far
        """
        wait = self._waits.get(sequence)
        if wait is None or not _leads(wait.leader, sequence, wait.shared):
            wait = self._find(sequence, running, prefilled, wait)
        return wait is not None and prefilled < wait.until

    def forget(self, sequence: Sequence) -> None:
        """It waits no more."""
        self._waits.pop(sequence, None)

    def _find(self, sequence: Sequence, running: list[Sequence], prefilled: int, before: _Wait | None) -> _Wait | None:
        shared, leader = max(
            ((self._shared(sequence, other), other) for other in running if _leads(other, sequence, math.inf)),
            key=lambda found: found[0],
            default=(0, None),
        )
        if leader is None or not _leads(leader, sequence, shared):
            return None
        until = before.until if before is not None else math.inf
        comes_first = leader.job.tag == sequence.job.tag and leader.rank < sequence.rank
        if until == math.inf and not comes_first:
            until = prefilled + shared - leader.computed
        self._waits[sequence] = wait = _Wait(leader, shared, until)
        return wait

    def _shared(self, sequence: Sequence, leader: Sequence) -> int:
        """Tokens that the sequence need not compute when the leader has, its last token being always its own.

        Of another choice of its request it forks, so these are all others of the prompt; else those of the full blocks
        that both begin with.
        """
        if sequence.job is leader.job and len(sequence.tokens) == len(sequence.job.prompt):
            return len(sequence.tokens) - 1
        size = self._block_size
        ours, theirs = sequence.tokens, leader.tokens
        if ours[:size] != theirs[:size]:
            return 0
        same = min(_common(ours, theirs), len(ours) - 1)
        one, other = sequence.job.namespaces, leader.job.namespaces
        same = min([same, *(start for start in one.keys() | other.keys() if one.get(start) != other.get(start))])
        return same // size * size


def _leads(leader: Sequence, sequence: Sequence, shared: float) -> bool:
    """Whether one is still going to compute what another can have of its first `shared` tokens."""
    holding = leader.holding
    if holding is None or not (holding.storing or leader.job is sequence.job):
        return False
    return leader.prefilling and leader.computed < shared


def _common(one: "array[int]", other: "array[int]") -> int:
    """How many tokens two sequences begin with in common."""
    length = min(len(one), len(other))
    different = np.frombuffer(one, np.uint32, length) != np.frombuffer(other, np.uint32, length)
    return int(different.argmax()) if different.any() else length
