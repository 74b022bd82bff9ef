"""A draft model as a source of drafts: which replies it is asked for, since a guess costs a share of a pass."""

from itertools import repeat

from worker.draft_model import DraftModel
from worker.drafting import Drafter, Price
from worker.sequence import Sequence
from worker.steptimes import Terms


class Guesses:
    """The Source behind the look-up: guesses of a model, for those replies where they pay.

    A pass costs nearly the same for one sequence and for all, so what a guess costs depends on how many want one. A
    sequence that has to catch up first, with a long prompt, is asked for only when what it will save by drafts makes up
    for that; how long its reply goes on nobody knows, so it is taken to go on for as long as it has.

    source   that rule costs at most twice what one would who knew (ski rental): Karlin, Manasse, Rudolph and Sleator,
             "Competitive Snoopy Caching", 1988
    """

    def __init__(self, model: DraftModel) -> None:
        self._model = model

    def draft(self, replies: list[Sequence], most: int, room: int, terms: Terms) -> dict[Sequence, list[int]]:
        limits = {sequence: min(most, self._model.room_for(sequence)) for sequence in replies}
        wanted = self._lengths({sequence: limit for sequence, limit in limits.items() if limit > 0}, terms)
        guesses = self._model.draft(wanted, room) if wanted else {}
        drafts = {sequence: sequence.take_guesses(found) for sequence, found in guesses.items()}
        return {sequence: found for sequence, found in drafts.items() if found}

    def leave(self, sequence: Sequence) -> None:
        self._model.leave(sequence)

    def _lengths(self, limits: dict[Sequence, int], terms: Terms) -> dict[Sequence, int]:
        """How many guesses pay for each of the sequences, at most its limit; those that get none are left out.

        The fewer share a pass, the more it costs each, so it is asked again until all that are left pay.
        """
        while limits:
            price = self._price(len(limits), terms)
            lengths = {one: price.length(repeat(_drafter(one).trust, limit)) for one, limit in limits.items()}
            paying = {
                one: length for one, length in lengths.items() if length and self._repays(one, length, price, terms)
            }
            for sequence in [one for one in limits if one not in paying]:
                _drafter(sequence).distrust()  # what is known of guesses that nobody makes grows old
            if len(paying) == len(limits):
                return paying
            limits = {one: limits[one] for one in paying}
        return {}

    def _price(self, sequences: int, terms: Terms) -> Price:
        """Of guesses when so many sequences share each pass."""
        share = self._model.times.plain(sequences) / sequences
        return Price(terms.price.row, terms.price.token + share * terms.rate)

    def _repays(self, sequence: Sequence, length: int, price: Price, terms: Terms) -> bool:
        """Whether drafts of this length will have saved what it takes to catch up, if the reply gets twice as long."""
        toll = self._model.behind(sequence) * self._model.times.token * terms.rate
        return toll <= min(sequence.generated, sequence.left) * price.saved(_drafter(sequence).trust, length)


def _drafter(sequence: Sequence) -> Drafter:
    assert sequence.drafter is not None  # without speculation no source is asked
    return sequence.drafter
