"""Decides what the next step computes: every decoding sequence, and as much prefill as the token budget leaves."""

from collections import deque
from dataclasses import dataclass

from worker.kv import KVMemory
from worker.model import Row
from worker.sequence import Job, Sequence


@dataclass(frozen=True, slots=True)
class Batch:
    """One step: rows[i] are the next tokens of sequences[i], rows of one token first; tokens of all in that order."""

    sequences: list[Sequence]
    rows: list[Row]
    tokens: list[int]

    @property
    def prefill_tokens(self) -> int:
        return sum(row.count for row in self.rows if row.count > 1)


class Scheduler:
    """Waiting and running sequences of one worker.

    budget        tokens that one step may compute, decode and prefill together
    max_waiting   sequences that may wait for a slot; beyond it `add` refuses

    Decode comes first in every step, so a long prompt delays a running reply by at most one step of `budget` tokens.
    """

    def __init__(self, memory: KVMemory, *, budget: int, max_waiting: int) -> None:
        self._memory = memory
        self._budget = budget
        self._max_waiting = max_waiting
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self.jobs: dict[str, Job] = {}
        self.reused_tokens = 0

    def add(self, job: Job) -> bool:
        """Queues a job; False when the queue is full."""
        if len(self.waiting) + len(job.sequences) > self._max_waiting:
            return False
        self.jobs[job.id] = job
        self.waiting.extend(job.sequences)
        return True

    def admit(self) -> None:
        """Gives free slots to waiting sequences, first come first served."""
        blocked: list[Sequence] = []
        while self.waiting and self._memory.slots.free:
            sequence = self.waiting.popleft()
            if self._waits_for_sibling(sequence):
                blocked.append(sequence)
                continue
            self._open(sequence)
        self.waiting.extendleft(reversed(blocked))

    def next_batch(self) -> Batch | None:
        """The next step's work, None when nothing runs."""
        singles = [(sequence, 1) for sequence in self.running if sequence.pending == 1]
        left = self._budget - len(singles)
        chunks: list[tuple[Sequence, int]] = []
        # Replies with several forced tokens go before prompts: a long prompt must not hold them up.
        for sequence in sorted(self.running, key=lambda sequence: not sequence.prompt_computed):
            if sequence.pending > 1 and left > 1:
                count = min(sequence.pending, left)
                chunks.append((sequence, count))
                left -= count
        return _batch(singles + chunks) if singles or chunks else None

    def computed(self, batch: Batch) -> None:
        """The batch's KV is in the slots: counts it, and stores the blocks that became full."""
        for sequence, row in zip(batch.sequences, batch.rows, strict=True):
            sequence.computed += row.count
            assert sequence.holding is not None
            self._memory.extend(sequence.holding, sequence.tokens, sequence.computed)

    def retire(self) -> list[Job]:
        """Frees what finished sequences hold; returns the jobs whose last sequence has finished."""
        finished = [sequence for sequence in self.running if sequence.finished]
        for sequence in finished:
            assert sequence.holding is not None
            self._memory.close(sequence.holding)
            sequence.holding = None
        if finished:
            self.running = [sequence for sequence in self.running if not sequence.finished]
        if any(sequence.finished for sequence in self.waiting):
            self.waiting = deque(sequence for sequence in self.waiting if not sequence.finished)
        ended = [job for job in self.jobs.values() if all(sequence.finished for sequence in job.sequences)]
        for job in ended:
            del self.jobs[job.id]
        return ended

    def stop(self, job: Job, reason: str) -> None:
        """Ends all sequences of a job; `retire` frees what they hold. A job that never had a slot starts here, cold."""
        if job.admitted is None:
            job.start(cached=0)
        for sequence in job.sequences:
            sequence.finish(reason)

    def _waits_for_sibling(self, sequence: Sequence) -> bool:
        """Later choices of a request wait until the first has computed the prompt, and then find it in the tree."""
        first = sequence.job.sequences[0]
        return sequence is not first and sequence.job.store and not first.prompt_computed and not first.finished

    def _open(self, sequence: Sequence) -> None:
        job = sequence.job
        holding = self._memory.open(sequence.tokens, job.spans, store=job.store)
        assert holding is not None  # a slot was free
        sequence.holding = holding
        sequence.computed = holding.reused
        self.running.append(sequence)
        if job.admitted is None:
            self.reused_tokens += holding.reused
            job.start(holding.reused)


def _batch(work: list[tuple[Sequence, int]]) -> Batch:
    rows: list[Row] = []
    tokens: list[int] = []
    for sequence, count in work:
        assert sequence.holding is not None
        start = sequence.computed
        rows.append(Row(sequence.holding.slot, start, count, wanted=count == sequence.pending))
        tokens.extend(sequence.tokens[start : start + count])
    return Batch([sequence for sequence, _ in work], rows, tokens)
