"""What a step takes by its rows and tokens, measured, and what drafts cost by that."""

from dataclasses import dataclass

from worker.drafting import Price

_SMOOTHING = 0.1  # weight of the newest step in what a step takes


@dataclass(frozen=True, slots=True)
class Terms:
    """What drafts of a step have to pay for.

    price   of draft tokens in the step
    rate    tokens that it yields a second without any
    """

    price: Price
    rate: float


FREE = Terms(Price(), 0.0)


class StepTimes:
    """What a step of replies takes, or a pass of a draft model, learned from those that were computed, in seconds.

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

    @property
    def token(self) -> float:
        """What each token of a row takes beyond its first."""
        return self._token

    def terms(self, sequences: int) -> Terms:
        """Of drafts in a step of so many sequences; FREE while nothing has been measured."""
        if not self._plain:
            return FREE
        rate = sequences / self.plain(sequences)
        return Terms(Price(self._row * rate, self._token * rate), rate)

    def plain(self, sequences: int) -> float:
        """A step of so many sequences without drafts, or of the nearest number that was measured; 0 if none was."""
        if not self._plain:
            return 0.0
        return self._plain[min(self._plain, key=lambda known: abs(known - sequences))]


def _tamed(seconds: float, known: float) -> float:
    """A measurement, at most twice what was expected: a step that the system has interrupted says nothing."""
    return min(seconds, 2 * known)
