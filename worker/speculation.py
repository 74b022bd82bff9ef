"""Speculative decoding: what a step of replies costs by its rows, and which of them get drafts in the next one."""

from collections.abc import Callable, Iterable

from worker.drafting import Drafter, Pool, Price
from worker.ngrams import NgramIndex
from worker.sequence import Sequence

_SMOOTHING = 0.1  # weight of the newest step in what a step takes


class StepTimes:
    """What a step of replies takes, learned from the engine's own steps, in seconds.

    The step without drafts is measured for each number of sequences. What is more than that, in a step with drafts or
    forced tokens, is put down to rows and tokens by normalised least mean squares (Widrow and Hoff, 1960).
    """

    def __init__(self) -> None:
        self._plain: dict[int, float] = {}
        self._row = 0.0
        self._token = 0.0
        self._observed = 0

    def observe(self, sequences: int, rows: int, extra: int, seconds: float) -> None:
        """A step of so many sequences has been computed, with `extra` tokens beyond one for each in `rows` of them."""
        if not extra:
            known = self._plain.get(sequences, seconds)
            self._plain[sequences] = known + _SMOOTHING * (_tamed(seconds, known) - known)
        elif self._plain:
            self._observed += 1
            plain = self.plain(sequences)
            expected = plain + self._row * rows + self._token * extra
            error = _tamed(seconds, expected) - expected
            step = max(_SMOOTHING, 1 / self._observed) * error / (rows * rows + extra * extra)
            self._row = max(0.0, self._row + step * rows)
            self._token = max(0.0, self._token + step * extra)

    def price(self, sequences: int) -> Price:
        """Of drafts in a step of so many sequences; nothing while nothing has been measured."""
        if not self._plain:
            return Price()
        rate = sequences / self.plain(sequences)
        return Price(self._row * rate, self._token * rate)

    def plain(self, sequences: int) -> float:
        """A step of so many sequences without drafts, or of the nearest number that has been measured."""
        return self._plain[min(self._plain, key=lambda known: abs(known - sequences))]


def _tamed(seconds: float, known: float) -> float:
    """A measurement, at most twice what was expected: a step that the system has interrupted says nothing."""
    return min(seconds, 2 * known)


class Speculator:
    """Shares what is left of a step between the drafts of its replies.

    most       draft tokens of one reply in one step; 0 for no speculation
    adaptive   False drafts as much as there is, whether it pays or not
    """

    def __init__(self, most: int, *, adaptive: bool = True, index: Callable[[], NgramIndex] = NgramIndex) -> None:
        self.most = most
        self.times = StepTimes()
        self._adaptive = adaptive
        self._pool = Pool(index)

    def drafter(self) -> Drafter | None:
        """For a new sequence."""
        return Drafter(self._pool) if self.most else None

    def draft(self, replies: Iterable[Sequence], room: int) -> dict[Sequence, list[int]]:
        """Drafts for those of the replies that have any, of `room` tokens together; who came first comes first."""
        found: dict[Sequence, list[int]] = {}
        if not self.most or room <= 0:
            return found
        order = sorted(replies, key=lambda sequence: sequence.rank)
        price = self.times.price(len(order)) if self._adaptive else Price()
        for sequence in order:
            drafts = sequence.draft(min(self.most, room), price)
            if drafts:
                found[sequence] = drafts
                room -= len(drafts)
        return found
