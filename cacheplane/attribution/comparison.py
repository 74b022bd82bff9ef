"""Where a prompt left an earlier one, and which of its tokens the earlier one has too."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from cacheplane.attribution.marks import ALIKE, Mark
from cacheplane.attribution.reasons import Divergence, Kind, Part
from cacheplane.attribution.sketch import Sketch

Ranges = list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Departed:
    """A divergence, and the token ranges that were sent before and lie behind it."""

    divergence: Divergence
    ranges: Ranges


def compare(sketch: Sketch, earlier: Sequence[Sketch], start: int, end: int) -> Departed | None:
    """Why tokens `start` to `end` - 1 are computed again, if an earlier prompt has a block or more of them.

    earlier   of the same tenant, latest first. The one that has most in common with the whole prompt is what it is
              compared with: a session with its own last turn, a first turn with another session's.
    returns   None when the tokens are new: a next turn, another conversation, a prompt like no other
    """
    kin = [other for other in earlier if other.origin.space == sketch.origin.space]
    if start >= end or not kin or _goes_on(sketch, kin) or not _may_be_known(sketch, kin, start, end):
        return None
    exact, loose = _weights(sketch, _exact), _weights(sketch, _loose)

    def in_common(other: Sketch) -> tuple[int, int]:
        """What is the same to the letter comes first: sessions may be alike but for their numbers."""
        letter = sum(map(exact.__getitem__, sketch.exact & other.exact))
        return letter, sum(map(loose.__getitem__, sketch.loose & other.loose))

    return _Alignment(sketch, max(kin, key=in_common)).departed(start, end)


def _goes_on(sketch: Sketch, kin: Sequence[Sketch]) -> bool:
    """Whether it is an earlier prompt and new segments behind it: no other prompt can have more in common with it."""
    longest = max((len(other.marks) for other in kin if sketch.begins_with(other)), default=0)
    behind = {mark.exact for mark in sketch.marks[longest:]}
    return longest > 0 and all(behind.isdisjoint(other.exact) for other in kin)


def _may_be_known(sketch: Sketch, kin: Iterable[Sketch], start: int, end: int) -> bool:
    """Whether any segment there looks like one that was sent before; most new turns are settled here."""
    there = [
        mark
        for mark, begins, ends in zip(sketch.marks, sketch.starts, sketch.ends, strict=True)
        if begins < end and (begins >= start or ends >= start + sketch.block_size) and mark.part is not Part.FRAME
    ]
    if any(mark.part is not Part.HISTORY for mark in there):
        return True
    loose = {mark.loose for mark in there}
    return any(not loose.isdisjoint(other.loose) for other in kin)


def _weights(sketch: Sketch, form: Callable[[Mark], int]) -> dict[int, int]:
    """Tokens by digest in a form."""
    weights: dict[int, int] = {}
    for mark, begins, ends in zip(sketch.marks, sketch.starts, sketch.ends, strict=True):
        weights[form(mark)] = weights.get(form(mark), 0) + ends - begins
    return weights


class _Alignment:
    """The segments of two prompts, paired one to one behind what both begin with.

    pairs    index of a segment -> index of the earlier prompt's segment that it is, exactly, loosely or by its name
    """

    def __init__(self, sketch: Sketch, earlier: Sketch) -> None:
        self._sketch, self._earlier = sketch, earlier
        ours, theirs = sketch.marks, earlier.marks
        same = 0
        while same < min(len(ours), len(theirs)) and ours[same].exact == theirs[same].exact:
            same += 1
        self._ours = range(same, len(ours))
        self._theirs = range(same, len(theirs))
        self.pairs: dict[int, int] = {}
        for form in (_exact, _loose, _name):
            self._pair(form)

    def _pair(self, form: Callable[[Mark], int]) -> None:
        """Pairs what is still alone and equal in this form, in order."""
        taken = set(self.pairs.values())
        free: dict[int, list[int]] = {}
        for there in reversed(self._theirs):
            if there not in taken and form(self._earlier.marks[there]):
                free.setdefault(form(self._earlier.marks[there]), []).append(there)
        for here in self._ours:
            if here not in self.pairs and (waiting := free.get(form(self._sketch.marks[here]))):
                self.pairs[here] = waiting.pop()

    def departed(self, start: int, end: int) -> Departed | None:
        here = self._first(self._ours, self._sketch.marks)
        there = self._first(self._theirs, self._earlier.marks)
        if here is None or there is None:
            return None  # one begins with the whole of the other
        part, kind = self._change(here, there)
        again = set(self.pairs)
        if kind is Kind.EDIT and self._alike(here, there):
            again.add(here)
        token = max(self._sketch.starts[here], min(self._sketch.shared(self._earlier), self._sketch.ends[here] - 1))
        behind = max(start, token)
        own = self._ranges((i for i in again if self._sketch.marks[i].part is not Part.FRAME), behind, end)
        if _length(own) < self._sketch.block_size:
            return None  # nothing that could have been reused, whatever stood before it
        # What stands before the change in its block is computed again with it.
        ranges = [(start, min(behind, end)), *self._ranges(again, behind, end)]
        return Departed(Divergence(part, kind, self._index(here, there, part), token, _length(ranges)), ranges)

    def _first(self, indices: Iterable[int], marks: Sequence[Mark]) -> int | None:
        return next((index for index in indices if marks[index].part is not Part.FRAME), None)

    def _change(self, here: int, there: int) -> tuple[Part, Kind]:
        """Of the first segments that differ: in which part it is, and what it is."""
        mark, other = self._sketch.marks[here], self._earlier.marks[there]
        stays = there in self.pairs.values()
        if here not in self.pairs:
            return mark.part, Kind.ADDED if stays or mark.part is not other.part else Kind.EDIT
        found = self._earlier.marks[self.pairs[here]]
        if mark.exact == found.exact:
            return (mark.part, Kind.ORDER) if stays else (other.part, Kind.REMOVED)
        return mark.part, (mark.change(found) if mark.loose == found.loose else None) or Kind.EDIT

    def _alike(self, here: int, there: int) -> bool:
        """A system prompt that resembles the earlier one: most of its text was sent before."""
        return self._sketch.marks[here].resemblance(self._earlier.marks[there]) >= ALIKE

    def _ranges(self, segments: Iterable[int], start: int, end: int) -> Ranges:
        spans = [(max(start, self._sketch.starts[i]), min(end, self._sketch.ends[i])) for i in sorted(segments)]
        return [(begin, stop) for begin, stop in spans if begin < stop]

    def _index(self, here: int, there: int, part: Part) -> int:
        """Which segment of the part it is, in the prompt that still has it."""
        if self._sketch.marks[here].part is part:
            return sum(mark.part is part for mark in self._sketch.marks[:here])
        return sum(mark.part is part for mark in self._earlier.marks[:there])


def _length(ranges: Ranges) -> int:
    return sum(stop - begin for begin, stop in ranges)


def _exact(mark: Mark) -> int:
    return mark.exact


def _loose(mark: Mark) -> int:
    return mark.loose


def _name(mark: Mark) -> int:
    return mark.name
