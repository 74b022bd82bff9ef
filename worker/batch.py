"""One step's work, and how its token budget is shared out."""

from collections import deque
from dataclasses import dataclass

from worker.fairness import Fairness
from worker.rows import Row
from worker.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Batch:
    """One step: rows[i] are the next tokens of sequences[i], rows of one token first; tokens of all in that order."""

    sequences: list[Sequence]
    rows: list[Row]
    tokens: list[int]

    @property
    def prefill_tokens(self) -> int:
        return sum(row.count for row in self.rows if row.count > 1)


def compose(running: list[Sequence], budget: int, spare: int, assured: int, fairness: Fairness) -> Batch | None:
    """The next step of the running sequences; None when there are none.

    budget    tokens of the step
    spare     tokens on top for guests, tags that hold fewer slots than another; what a guest leaves stays unused then
    assured   tokens that every reply gets before anything is shared out, and a prompt of which only one is missing;
              for all slots together they leave half of the budget to prompts, whatever grammars force on replies
    """
    sure = [sequence for sequence in running if not sequence.prefilling or sequence.pending == 1]
    counts = {sequence: min(sequence.pending, assured) for sequence in sure}
    _share_out(running, counts, budget - sum(counts.values()), spare, fairness)
    return _batch(sorted(counts.items(), key=lambda item: item[1] > 1)) if counts else None


def _share_out(running: list[Sequence], counts: dict[Sequence, int], left: int, spare: int, fairness: Fairness) -> None:
    """Adds up to `left` tokens to the counts: in turns between tags, within a tag replies first and then by rank."""
    lines: dict[str, deque[Sequence]] = {}
    hungry = [sequence for sequence in running if sequence.pending > counts.get(sequence, 0)]
    for sequence in sorted(hungry, key=lambda sequence: (sequence.prefilling, sequence.rank)):
        lines.setdefault(sequence.job.tag, deque()).append(sequence)
    guests = {tag for tag in lines if fairness.is_guest(tag)} if spare else set()
    given: dict[str, int] = {}
    while left > 0 and lines:
        needs = {tag: line[0].pending - counts.get(line[0], 0) for tag, line in lines.items()}
        tag, most = fairness.turn(needs, given)
        if tag in guests:
            left, spare = left + spare, 0
        elif not guests.isdisjoint(given):
            break  # the step is a guest's: filling it up would only make it longer
        count = min(most, left)
        first = lines[tag][0]
        counts[first] = counts.get(first, 0) + count
        given[tag] = given.get(tag, 0) + count
        left -= count
        if count == needs[tag]:
            lines[tag].popleft()
        if not lines[tag]:
            del lines[tag]


def _batch(work: list[tuple[Sequence, int]]) -> Batch:
    rows: list[Row] = []
    tokens: list[int] = []
    for sequence, count in work:
        assert sequence.holding is not None
        start = sequence.computed
        rows.append(Row(sequence.holding.slot, start, count, wanted=int(count == sequence.pending)))
        tokens.extend(sequence.tokens[start : start + count])
    return Batch([sequence for sequence, _ in work], rows, tokens)
