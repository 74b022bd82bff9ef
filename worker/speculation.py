"""Speculative decoding: which replies of a step get drafts, and where these come from."""

from collections.abc import Callable, Iterable
from typing import Protocol

from worker.draft_model import DraftModel
from worker.drafting import Drafter, Pool
from worker.guesses import Guesses
from worker.ngrams import NgramIndex
from worker.sequence import Sequence
from worker.steptimes import FREE, StepTimes, Terms


class Source(Protocol):
    """Where drafts come from. Only the engine's thread calls."""

    def draft(self, replies: list[Sequence], most: int, room: int, terms: Terms) -> dict[Sequence, list[int]]:
        """Drafts for those of the replies that have any, as far as they pay on these terms.

        replies   who comes first is served first; all their tokens but drafts are of the step
        most      tokens of one reply
        room      tokens of all replies together, and of whatever else has to be computed first
        """

    def leave(self, sequence: Sequence) -> None:
        """The sequence has lost its slot: what is held for it is given back, if anything is."""


class Lookup:
    """The Source that costs nothing: what came next when the last tokens were seen before."""

    def draft(self, replies: list[Sequence], most: int, room: int, terms: Terms) -> dict[Sequence, list[int]]:
        found: dict[Sequence, list[int]] = {}
        for sequence in replies:
            drafts = sequence.draft(min(most, room), terms.price)
            if drafts:
                found[sequence] = drafts
                room -= len(drafts)
        return found

    def leave(self, sequence: Sequence) -> None:
        """Holds nothing."""


class Speculator:
    """Shares what is left of a step between the drafts of its replies.

    most          draft tokens of one reply in one step; 0 for no speculation
    adaptive      False drafts as much as there is, whether it pays or not
    draft_model   asked for those replies that nothing was found for
    """

    def __init__(
        self,
        most: int,
        *,
        adaptive: bool = True,
        index: Callable[[], NgramIndex] = NgramIndex,
        draft_model: DraftModel | None = None,
    ) -> None:
        self.most = most
        self.times = StepTimes()
        self._adaptive = adaptive
        self._pool = Pool(index)
        self.draft_model = draft_model
        self._sources: list[Source] = [Lookup(), *([] if draft_model is None else [Guesses(draft_model)])]

    def drafter(self) -> Drafter | None:
        """For a new sequence."""
        return Drafter(self._pool) if self.most else None

    def draft(self, replies: Iterable[Sequence], room: int) -> dict[Sequence, list[int]]:
        """Drafts for those of the replies that have any, of `room` tokens together; who came first comes first."""
        found: dict[Sequence, list[int]] = {}
        order = sorted(replies, key=lambda sequence: sequence.rank)
        terms = self.times.terms(len(order)) if self._adaptive else FREE
        for source in self._sources if self.most else []:
            rest = [sequence for sequence in order if sequence not in found]
            left = room - sum(map(len, found.values()))
            if rest and left > 0:
                found |= source.draft(rest, self.most, left, terms)
        return found

    def leave(self, sequence: Sequence) -> None:
        """The sequence has lost its slot."""
        for source in self._sources:
            source.leave(sequence)
