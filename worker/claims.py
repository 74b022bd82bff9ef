"""Who has to give up its place when others have a stronger claim to it, to a slot or to blocks."""

from collections.abc import Iterable

from worker.fairness import Fairness
from worker.sequence import Sequence

PROGRESS = 32  # tokens that a sequence gets further before it can lose its slot again, if it got anywhere at all


class Claims:
    """The running sequences of one moment, by the rules of fairness between tags and by rank within each.

    Who is named here is safe to stop: it got further since it lost its place last, and its blocks are all there.
    """

    def __init__(self, running: list[Sequence], fairness: Fairness) -> None:
        held: dict[str, list[Sequence]] = {}
        for sequence in running:
            held.setdefault(sequence.job.tag, []).append(sequence)
        self._fairness = fairness
        self._held = {tag: held[tag] for tag in fairness.richest(held)}

    def weakest_first(self) -> list[Sequence]:
        """All of them: of the tag with the most slots first, then the most served, and in it as in `_worst`."""
        return [one for line in self._held.values() for one in sorted(line, key=_weakness, reverse=True)]

    def slot_for(self, sequence: Sequence) -> Sequence | None:
        """Who gives up its slot to a waiting one; None when nobody has to."""
        return self._elsewhere(sequence.job.tag) or self._at_home(sequence)

    def room_for(self, sequence: Sequence) -> Sequence | None:
        """Who gives up its blocks to one of them; None when nobody with a weaker claim can."""
        claims = self.weakest_first()
        weaker = claims[: claims.index(sequence)]
        return next((one for one in weaker if one.is_safe_to_stop and not one.is_loading), None)

    def _elsewhere(self, tag: str) -> Sequence | None:
        """Of the richest tag that has to give up a slot to this one."""
        for rich, line in self._held.items():
            if self._fairness.outweighs(tag, rich):
                victim = _worst(line)
            elif self._fairness.takes_turns(tag, rich):
                victim = _worst(sequence for sequence in line if sequence.stay >= PROGRESS)
            else:
                break  # nor has one that is less rich
            if victim is not None:
                return victim
        return None

    def _at_home(self, sequence: Sequence) -> Sequence | None:
        """Of the same tag, when it has lower priority and has not caught up by waiting."""
        lower = (one for one in self._held.get(sequence.job.tag, ()) if one.job.priority < sequence.job.priority)
        return _worst(one for one in lower if one.rank > sequence.rank)


def _worst(sequences: Iterable[Sequence]) -> Sequence | None:
    """Lowest priority or youngest; who stores nothing comes last, since it would have to start all over."""
    found = [one for one in sequences if one.is_safe_to_stop and not one.is_loading]
    return max(found, key=_weakness, default=None)


def _weakness(sequence: Sequence) -> tuple[bool, tuple[float, int]]:
    return sequence.job.store, sequence.rank
