"""A smaller model that guesses what replies go on with, and its own KV of them.

source   Leviathan et al., "Fast Inference from Transformers via Speculative Decoding", 2023. There a guess is accepted
         by a ratio of probabilities; here it is where the model itself draws the same (worker/drafting.py)
"""

import time
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray

from worker.kv import Layout, PagedLayout, SlotLayout
from worker.model import Model
from worker.preview import Preview
from worker.rows import Row
from worker.sampler import Logits
from worker.sequence import Sequence, common
from worker.steptimes import StepTimes

_WARM_UP = 32  # tokens
_BLOCK = 16  # tokens of a block, where the layout has blocks


@dataclass(slots=True)
class _Place:
    """What the model knows of one sequence.

    known      tokens of the sequence when it was guessed for last
    guesses    what was guessed to come behind these
    computed   of those tokens and guesses, how many have their KV in the slot
    """

    slot: int
    known: int = 0
    guesses: list[int] = field(default_factory=list)
    computed: int = 0

    def catch_up(self, tokens: "array[int]") -> None:
        """The sequence has these tokens now: guesses that came true are tokens, behind a wrong one all are void."""
        new = tokens[self.known :]
        same = common(new, self.guesses)
        if same < len(new):
            self.computed = min(self.computed, self.known + same)
            self.guesses = []
        else:
            self.guesses = self.guesses[same:]
        self.known = len(tokens)


@dataclass(slots=True)
class _Feed:
    """The next tokens of one sequence for the model, how many guesses are wanted behind them, and who makes them."""

    place: _Place
    tokens: list[int]
    wanted: int
    preview: Preview


class DraftModel:
    """Guesses for many sequences at once, one token of each in a pass.

    model        of the same tokens as the model that it drafts for
    layout       of its own, with a slot for every sequence that runs, and room for all of them
    vocabulary   rows of that model's embedding; this one's may have more or fewer, none of which stand for a token
    times        what its passes take

    A sequence gets its slot when guesses are first wanted for it, and gives it back by `leave`. What it has generated
    since, or its whole prompt at first, is computed before the first guess, in the same pass where there is room.
    Choices of one request share their prompt: the first of them computes it, and the others fork it.
    """

    def __init__(self, model: Model, layout: Layout, vocabulary: int) -> None:
        self.layout = layout
        self.times = StepTimes()
        self._model = model
        self._vocabulary = vocabulary
        self._last = model.config.vocabulary - 1
        self._places: dict[Sequence, _Place] = {}

    @classmethod
    def beside(cls, target: Model, model: Model, slots: int) -> Self:
        """To draft for another model on the same device, which has so many slots."""
        on_cpu = model.device.type == "cpu"
        blocks = 1 if on_cpu else slots * -(-model.context // _BLOCK)  # slots of the CPU have no use for any
        kind = SlotLayout if on_cpu else PagedLayout
        layout = kind(
            model.kv_shape, slots=slots, context=model.context, blocks=blocks, block_size=_BLOCK, device=model.device
        )
        return cls(model, layout, target.config.vocabulary)

    @property
    def kv_bytes(self) -> int:
        """The most that its KV takes; on a CPU it takes only what has been written."""
        return self.layout.slots.total * self.layout.context * self.layout.shape.bytes_per_token

    def room_for(self, sequence: Sequence) -> int:
        """The most guesses that make sense for a sequence: the token behind its last draft comes by itself."""
        return min(sequence.left - 1, self.layout.context - len(sequence.tokens))

    def behind(self, sequence: Sequence) -> int:
        """Tokens that it would have to compute before it could guess, beyond the one of any pass."""
        if sequence in self._places:
            computed = self._caught_up(sequence).computed
        else:
            sibling = self._sibling(sequence)
            computed = 0 if sibling is None else min(sibling.computed, _shared(sequence))
        return max(0, len(sequence.tokens) - computed - 1)

    def draft(self, wanted: dict[Sequence, int], room: int) -> dict[Sequence, list[int]]:
        """Guesses for each sequence, as many as are wanted and possible; it is left out while it has to catch up.

        room   tokens of guesses and of catching up together, so that a step stays within its budget
        """
        feeds: list[_Feed] = []
        granted: dict[Sequence, int] = {}
        for sequence, most in wanted.items():
            if self._waits(sequence, wanted):
                continue
            place = self._caught_up(sequence)
            if place.guesses:  # made for this very step, when it was planned before, and not refuted since
                granted[sequence] = cost = min(most, len(place.guesses), room)
            else:
                feed = _feed(sequence, place, most, room)
                feeds += [feed] if feed.tokens else []
                granted[sequence], cost = feed.wanted, len(feed.tokens) + max(0, feed.wanted - 1)
            room -= cost
        while feeds:
            feeds = [feed for feed, logits in self._pass(feeds) if self._goes_on(feed, logits)]
        return {sequence: self._places[sequence].guesses[:count] for sequence, count in granted.items() if count}

    def leave(self, sequence: Sequence) -> None:
        """Gives back what is held for a sequence, if anything is."""
        place = self._places.pop(sequence, None)
        if place is not None:
            self.layout.leave(place.slot)

    def warm_up(self) -> None:
        """Computes meaningless tokens: touches the weights and takes the first measurement of passes."""
        slot = self._take()
        count = min(_WARM_UP, self.layout.context)
        self._compute([0] * count, [Row(slot, 0, count, 0)])
        for size in (1, count):
            began = time.perf_counter()
            self._compute([0] * size, [Row(slot, count - size, size)])
            self.times.observe(1, int(size > 1), size - 1, time.perf_counter() - began)
        self.layout.leave(slot)

    def check(self, running: Iterable[Sequence]) -> None:
        """The books; RuntimeError when a slot is held for anyone but a running sequence, or blocks for nobody."""
        if not self._places.keys() <= set(running):
            raise RuntimeError("draft model: a slot is held for a sequence that does not run")
        if self.layout.slots.free != self.layout.slots.total - len(self._places):
            raise RuntimeError("draft model: slots are held for nobody")
        self.layout.pool.check([], self.layout.held())

    def _caught_up(self, sequence: Sequence) -> _Place:
        """The place of a sequence, which it gets if it has none, with nothing of what was refuted."""
        if sequence not in self._places:
            self._places[sequence] = self._new_place(sequence)
        place = self._places[sequence]
        place.catch_up(sequence.tokens)
        self.layout.cut(place.slot, -(-place.computed // self.layout.block_size))
        return place

    def _new_place(self, sequence: Sequence) -> _Place:
        """Which begins with what another choice of its request has computed of their prompt."""
        sibling, place = self._sibling(sequence), _Place(self._take())
        if sibling is not None:
            place.known = place.computed = min(sibling.computed, _shared(sequence))
            self.layout.fork(sibling.slot, place.slot, place.computed)
        return place

    def _waits(self, sequence: Sequence, wanted: dict[Sequence, int]) -> bool:
        """Whether another choice of its request is just computing what it can fork then."""
        computing = (self._places[one] for one in sequence.job.sequences if one in self._places and one in wanted)
        return sequence not in self._places and any(place.computed < _shared(sequence) for place in computing)

    def _sibling(self, sequence: Sequence) -> _Place | None:
        """Of the other choices of its request, the place that knows most of their prompt."""
        places = [self._places[one] for one in sequence.job.sequences if one in self._places]
        return max(places, key=lambda place: place.computed, default=None)

    def _take(self) -> int:
        slot = self.layout.slots.take()
        if slot is None:
            raise RuntimeError("draft model: more sequences run than it has slots")
        return slot

    def _pass(self, feeds: list[_Feed]) -> Iterator[tuple[_Feed, Logits]]:
        """One forward pass; the feeds that want guesses, with the logits behind their last token."""
        feeds.sort(key=lambda feed: len(feed.tokens) > 1)
        began = time.perf_counter()
        rows = [Row(feed.place.slot, feed.place.computed, len(feed.tokens), int(feed.wanted > 0)) for feed in feeds]
        tokens = [min(token, self._last) for feed in feeds for token in feed.tokens]
        logits = self._compute(tokens, rows)
        for feed in feeds:
            feed.place.computed += len(feed.tokens)
        extra = len(tokens) - len(rows)
        self.times.observe(len(rows), sum(row.count > 1 for row in rows), extra, time.perf_counter() - began)
        return zip([feed for feed in feeds if feed.wanted], logits, strict=True)

    def _compute(self, tokens: list[int], rows: list[Row]) -> NDArray[np.float32]:
        """The logits that the rows want, [wanted, vocabulary of the other model]."""
        for row in rows:
            if not self.layout.prepare(row.slot, row.start, row.start + row.count):
                raise RuntimeError("draft model: its layout has no room for all of its slots")
        logits = self._model.forward(tokens, rows, self.layout).cpu().numpy()[:, : self._vocabulary]
        self._model.wait()
        missing = self._vocabulary - logits.shape[1]
        return np.pad(logits, ((0, 0), (0, missing)), constant_values=-np.inf) if missing else logits

    def _goes_on(self, feed: _Feed, logits: Logits) -> bool:
        """Takes a guess, and what its grammar forces behind it; whether there is one, and another is wanted."""
        feed.tokens = feed.preview.take(logits)
        feed.place.guesses += feed.tokens
        return bool(feed.tokens) and len(feed.place.guesses) < feed.wanted


def _shared(sequence: Sequence) -> int:
    """Tokens that all choices of its request have in common, but for the one behind which each wants logits."""
    return len(sequence.job.prompt) - 1


def _feed(sequence: Sequence, place: _Place, most: int, room: int) -> _Feed:
    """What is next to compute for a sequence without guesses: all that is missing, if that leaves room for a guess."""
    missing = list(sequence.tokens[place.computed :])
    wanted = min(most, room - len(missing) + 1) if 0 < len(missing) <= room else 0
    return _Feed(place, missing[:room], wanted, sequence.preview())
