"""Decides who holds a slot and what the next step computes: fair between tags, by rank within each."""

from worker.batch import Batch, compose
from worker.claims import PROGRESS, Claims
from worker.fairness import PREFILL, Fairness, reply_cost
from worker.kv import Holding, KVMemory
from worker.leaders import Leaders
from worker.sequence import Job, Sequence
from worker.speculation import Speculator
from worker.stepbudget import StepBudget
from worker.waiting import WaitingQueue
from worker.wire import Cached, WorkerError
from worker.work import Work

_SLACK = 2  # budgets that a tag may be served ahead of another


class Scheduler:
    """Waiting and running sequences of one worker.

    budget        tokens that one step may compute, decode and prefill together
    max_waiting   sequences that may wait for a slot; `add` refuses more

    Replies come first in every step, so a long prompt delays a running reply by at most one step of `budget` tokens.
    Slots are shared evenly between the tags that want them: who has fewer takes one from who has more, whose
    sequence goes back to wait with the tokens that it has. Its blocks stay in the tree, so it goes on by a hit.
    """

    def __init__(
        self, memory: KVMemory, *, budget: int, max_waiting: int, speculator: Speculator | None = None
    ) -> None:
        self._memory = memory
        self.speculator = speculator or Speculator(0)
        self._budget = StepBudget(budget, 2 * memory.slots.total)
        self.fairness = Fairness(_SLACK * budget)
        self._leaders = Leaders(memory.block_size)
        self.waiting = WaitingQueue(max_waiting)
        self.running: list[Sequence] = []
        self.jobs: dict[str, Job] = {}
        self._loading: list[Sequence] = []
        self._stopped: list[Job] = []
        self.work = Work()

    @property
    def loading(self) -> bool:
        """Whether blocks are on their way from host or disk to a sequence, even if it has ended meanwhile."""
        return self._memory.loading

    def add(self, job: Job) -> None:
        """Queues a job. WorkerError 503 when the queue is full, or its tag's part of the queue."""
        open_ones = [sequence for sequence in job.sequences if not sequence.finished]
        count = len(open_ones)
        if self.waiting.is_full(count):
            raise WorkerError(503, "overloaded", "the queue is full")
        if self.waiting.is_full_for(job.tag, count):
            raise WorkerError(503, "overloaded", "this tag's part of the queue is full")
        self.jobs[job.id] = job
        self.fairness.enter(job.tag)
        for sequence in open_ones:
            self.waiting.push(sequence)
        if not open_ones:
            job.start(Cached())
            self._stopped.append(job)

    def admit(self) -> None:
        """Gives slots to waiting sequences, free ones and those that others have to give up; starts what is loaded."""
        for sequence in [sequence for sequence in self._loading if not sequence.is_loading]:
            self._loading.remove(sequence)
            self._begin(sequence)
        while self._admit_one():
            pass

    def next_batch(self) -> Batch | None:
        """The next step's work, with room for its KV, which others have to give up if need be; None when nothing runs.

        Who needs a block when there is none gets it from whoever has a weaker claim and is safe to stop; while there is
        nobody like that it stays out of the step. When all do, the youngest goes, safe or not: so the oldest always
        gets on, and all come to an end.
        """
        budget = self._budget.next(self.fairness.busy)
        assured = max(1, budget // (2 * self._memory.slots.total))
        ready, left_out = self._ready(), list[Sequence]()
        while ready:
            batch = compose(ready, budget, self._budget.whole - budget, assured, self.fairness, self.speculator)
            short = None if batch is None else self._without_room(batch)
            if short is None:
                return batch
            victim = Claims(self.running, self.fairness).room_for(short)
            if victim is None:
                ready.remove(short)
                left_out.append(short)
            if not ready and len(left_out) > 1:
                victim = max(left_out, key=lambda sequence: sequence.rank)
            if victim is not None:
                self.preempt(victim)
                ready, left_out = self._ready(), []
        return None

    def computed(self, batch: Batch) -> None:
        """The batch's KV is in the slots: counts what is no draft, and stores the blocks that became full."""
        for sequence, row, drafts in zip(batch.sequences, batch.rows, batch.drafts, strict=True):
            self._move_on(sequence, row.count - len(drafts))

    def verified(self, sequence: Sequence, drafts: int, accepted: int) -> None:
        """Of the drafts that the last batch computed so many are part of the reply; the KV of the rest is nothing."""
        if accepted:
            self._move_on(sequence, accepted)
        self.fairness[sequence.job.tag].computed += PREFILL * (drafts - accepted)

    def _move_on(self, sequence: Sequence, count: int) -> None:
        self._charge(sequence, count)
        sequence.move_on(count)
        assert sequence.holding is not None
        self._memory.extend(sequence.holding, sequence.tokens, sequence.computed)

    def retire(self) -> list[Job]:
        """Frees what finished sequences hold; returns the jobs whose last sequence has finished."""
        finished = [sequence for sequence in self.running if sequence.finished]
        for sequence in finished:
            self._close(sequence)
        touched = dict.fromkeys([*(sequence.job for sequence in finished), *self._stopped])
        self._stopped = []
        ended = [job for job in touched if all(sequence.finished for sequence in job.sequences)]
        for job in ended:
            del self.jobs[job.id]
            self.fairness.leave(job.tag)
        return ended

    def stop(self, job: Job, reason: str) -> None:
        """Ends all sequences of a job; `retire` frees what they hold. A job that never had a slot starts here, cold."""
        if job.admitted is None:
            job.start(Cached())
        for sequence in job.sequences:
            if sequence.holding is None and not sequence.finished:
                self.waiting.remove(sequence)
                self._leaders.forget(sequence)
            sequence.finish(reason)
        self._stopped.append(job)

    def preempt(self, sequence: Sequence) -> None:
        """A running sequence goes back to wait, with all its tokens; what is stored of it stays in the tree."""
        self._memory.close(sequence.pause(PROGRESS))
        self._vacate(sequence)
        self.waiting.push(sequence)
        self.work.preemptions += 1

    def _ready(self) -> list[Sequence]:
        """Running sequences whose blocks are all there."""
        return [sequence for sequence in self.running if sequence not in self._loading]

    def _admit_one(self) -> bool:
        """Gives a slot to the waiting sequence whose turn it is, or makes another give up its own; False if neither."""
        heads = self._heads()
        order = self.fairness.line_up(sorted(heads, key=lambda tag: heads[tag].rank))
        if not order:
            return False
        if self._open(heads[order[0]]):
            return True
        claims = Claims(self.running, self.fairness)
        for tag in order:
            victim = claims.slot_for(heads[tag])
            if victim is not None:
                self.preempt(victim)
                self._open(heads[tag])  # or it needs more room than this one left
                return True
        return False

    def _heads(self) -> dict[str, Sequence]:
        """Of each tag the first that has not better wait for another one's blocks."""
        heads: dict[str, Sequence] = {}
        ahead = [sequence for sequence in self.running if sequence.prefilling]
        for tag, line in self.waiting.lines.items():
            for sequence in line:
                if not self._leaders.make_wait(sequence, ahead, self.work.prefilled):
                    heads[tag] = sequence
                    break
        return heads

    def _without_room(self, batch: Batch) -> Sequence | None:
        """Makes room for the KV of a batch, strongest claim first; the first sequence that there is none for."""
        rows = dict(zip(batch.sequences, batch.rows, strict=True))
        for sequence in reversed(Claims(self.running, self.fairness).weakest_first()):
            row = rows.get(sequence)
            if row is None:
                continue
            assert sequence.holding is not None
            if not self._memory.prepare(sequence.holding, row.start, row.start + row.count):
                return sequence
        return None

    def _open(self, sequence: Sequence) -> bool:
        """Starts a waiting sequence; False when there is no slot, or no room for its KV."""
        job, account = sequence.job, self.fairness[sequence.job.tag]
        forked = self._fork(sequence)
        holding = forked or self._memory.open(sequence.tokens, job.spans, store=job.store)
        if holding is None:
            return False
        self.waiting.remove(sequence)
        self._leaders.forget(sequence)
        # In full, cached or not (see Account.asked); choices of one request share their prompt.
        if not sequence.protected and not forked and (sequence.index == 0 or not job.store):
            account.asked += PREFILL * len(job.prompt)
        account.slots += 1
        sequence.take(holding)
        self.running.append(sequence)
        if holding.loading:
            self._loading.append(sequence)
        else:
            self._begin(sequence)
        return True

    def _fork(self, sequence: Sequence) -> Holding | None:
        """A slot that begins as that of another choice of the same request."""
        sibling = sequence.forks_from
        if sibling is None or sibling.holding is None:
            return None
        return self._memory.fork(sibling.holding, len(sequence.job.prompt) - 1)

    def _begin(self, sequence: Sequence) -> None:
        """All that it reuses is in its slot."""
        sequence.begin()
        assert sequence.holding is not None
        if sequence.job.admitted is None:
            came = len(sequence.job.prompt) + sequence.sent  # with what another worker has generated
            cached = sequence.holding.cached.within(came, self._memory.block_size)
            self.work.spare(cached)
            sequence.job.start(cached)

    def _close(self, sequence: Sequence) -> None:
        job = sequence.job
        assert sequence.holding is not None
        if not sequence.holding.loading:
            self._memory.keep_tail(sequence.holding, sequence.tokens, sequence.computed)
        self._memory.close(sequence.holding, job.tag, job.retention)
        sequence.holding = None
        self._vacate(sequence)

    def _vacate(self, sequence: Sequence) -> None:
        """It has no slot any more, whether it had begun in it or not."""
        self.speculator.leave(sequence)
        self.running.remove(sequence)
        self.fairness[sequence.job.tag].slots -= 1
        if sequence in self._loading:
            self._loading.remove(sequence)

    def _charge(self, sequence: Sequence, count: int) -> None:
        account, end = self.fairness[sequence.job.tag], sequence.computed + count
        if sequence.prefilling:
            account.computed += PREFILL * count
            self.work.prefilled += count
        else:
            account.computed += reply_cost(count, end)
        # What is computed again after a preemption was charged when it was new.
        fresh = end - max(sequence.furthest, len(sequence.job.prompt))
        if fresh > 0:
            account.asked += reply_cost(fresh, end)
