"""The sequences that wait for a slot: bounded, and in order within each tag."""

from bisect import insort

from worker.sequence import Sequence

_SHARE = 3  # places that a tag may take for each place that is left


class WaitingQueue:
    """Waiting sequences by tag, each tag's in order of rank.

    limit    sequences that may wait in all
    tokens   of all that wait, none of them computed

    However many tags queue, some places are left for one that has none: a tag may not wait with more than three times
    as many sequences as there are places left, so one alone fills three quarters of the queue.

    source   dynamic thresholds: Choudhury and Hahne, IEEE/ACM Transactions on Networking 6(2), 1998
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lines: dict[str, list[Sequence]] = {}
        self._count = 0
        self.tokens = 0

    def __len__(self) -> int:
        return self._count

    @property
    def lines(self) -> dict[str, list[Sequence]]:
        """The waiting sequences of each tag that has any, first to last."""
        return self._lines

    def is_full(self, count: int) -> bool:
        """Whether `count` more sequences are too many for the queue."""
        return self._count + count > self._limit

    def is_full_for(self, tag: str, count: int) -> bool:
        """Whether `count` more sequences are more than this tag's part of the queue."""
        waiting = len(self._lines.get(tag, ())) + count
        return waiting > _SHARE * (self._limit - self._count)

    def push(self, sequence: Sequence) -> None:
        """Whatever the bounds say: a sequence that lost its slot always has a place."""
        insort(self._lines.setdefault(sequence.job.tag, []), sequence, key=lambda other: other.rank)
        self._count += 1
        self.tokens += len(sequence.tokens)

    def remove(self, sequence: Sequence) -> None:
        line = self._lines[sequence.job.tag]
        line.remove(sequence)
        self._count -= 1
        self.tokens -= len(sequence.tokens)
        if not line:
            del self._lines[sequence.job.tag]
