"""One step's work, and how its token budget is shared out."""

from collections import deque
from dataclasses import dataclass

from worker.fairness import Fairness
from worker.rows import Row
from worker.sequence import Sequence
from worker.speculation import Speculator


@dataclass(frozen=True, slots=True)
class Batch:
    """One step: rows[i] are the next tokens of sequences[i], rows of one token first; tokens of all in that order.

    drafts           of each sequence; they come last in its row
    prefill_tokens   of sequences that compute what they came with
    """

    sequences: list[Sequence]
    rows: list[Row]
    tokens: list[int]
    drafts: list[list[int]]
    prefill_tokens: int


def compose(
    running: list[Sequence], budget: int, spare: int, assured: int, fairness: Fairness, speculator: Speculator
) -> Batch | None:
    """The next step of the running sequences; None when there are none. Drafts get what of the budget nobody wants.

    budget    tokens of the step
    spare     tokens on top for guests, tags that hold fewer slots than another; what a guest leaves stays unused then
    assured   tokens that every reply gets before anything is shared out, and a prompt of which only one is missing;
              for all slots together they leave half of the budget to prompts, whatever grammars force on replies
    """
    sure = [sequence for sequence in running if not sequence.prefilling or sequence.pending == 1]
    counts = {sequence: min(sequence.pending, assured) for sequence in sure}
    left = _share_out(running, counts, budget - sum(counts.values()), spare, fairness)
    replies = [one for one, count in counts.items() if not one.prefilling and count == one.pending]
    return _batch(counts, speculator.draft(replies, left)) if counts else None


def _share_out(running: list[Sequence], counts: dict[Sequence, int], left: int, spare: int, fairness: Fairness) -> int:
    """Adds up to `left` tokens to the counts: in turns between tags, within a tag replies first and then by rank.

    Returns how many tokens nobody wants.
    """
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
            return 0  # the step is a guest's: filling it up would only make it longer
        count = min(most, left)
        first = lines[tag][0]
        counts[first] = counts.get(first, 0) + count
        given[tag] = given.get(tag, 0) + count
        left -= count
        if count == needs[tag]:
            lines[tag].popleft()
        if not lines[tag]:
            del lines[tag]
    return left


def _batch(counts: dict[Sequence, int], drafts: dict[Sequence, list[int]]) -> Batch:
    rows: list[Row] = []
    tokens: list[int] = []
    sequences = sorted(counts, key=lambda sequence: counts[sequence] + len(drafts.get(sequence, ())) > 1)
    for sequence in sequences:
        assert sequence.holding is not None
        start, count, draft = sequence.computed, counts[sequence], drafts.get(sequence, [])
        wanted = 1 + len(draft) if count == sequence.pending else 0
        rows.append(Row(sequence.holding.slot, start, count + len(draft), wanted))
        tokens.extend(sequence.tokens[start : start + count])
        tokens.extend(draft)
    prefill = sum(count for sequence, count in counts.items() if sequence.prefilling)
    return Batch(sequences, rows, tokens, [drafts.get(sequence, []) for sequence in sequences], prefill)
