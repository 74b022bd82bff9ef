"""The engine: one thread that runs steps, and the only one that touches scheduler, KV memory and slots."""

import threading
import time
from array import array
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TypeVar

from cacheplane.identity import Span
from cacheplane.wire import NO_SEQ, Event, Snapshot
from worker.batch import Batch
from worker.grammar import Grammar, GrammarLimitError, Landing
from worker.inbox import Inbox
from worker.kv import KVMemory
from worker.model import Model
from worker.rows import Row
from worker.sampler import Logits, LogitsError
from worker.scheduler import Scheduler
from worker.sequence import Emit, Job, Sequence
from worker.tokenizer import Vocabulary
from worker.wire import ErrorFrame, GenerateRequest, Occupancy, ReleaseRequest, RetainRequest, WorkerError
from worker.work import Work

T = TypeVar("T")
_SMOOTHING = 0.2  # weight of the newest measurement in the moving averages
_MIN_MEASURED_PREFILL = 32  # tokens; smaller chunks measure overhead, not a rate
_WARM_UP_DRAFT = 8  # tokens
_IDLE_SECONDS = 0.5
_TOO_LONG = "the grammar takes too long to follow"
_NO_NUMBERS = "the model has given what is no number"
_LOADING_SECONDS = 0.001  # between two looks at blocks that are on their way, when there is nothing else to do


@dataclass(slots=True)
class Counters:
    """What the engine has done since it started, and its moving averages; draft tokens by where they came from."""

    steps: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    requests: int = 0
    aborted: int = 0
    drafted: Counter[str] = field(default_factory=Counter)
    accepted: Counter[str] = field(default_factory=Counter)
    prefill_tps: float = 0.0
    decode_step_ms: float = 0.0

    @property
    def drafted_tokens(self) -> int:
        return self.drafted.total()

    @property
    def accepted_tokens(self) -> int:
        return self.accepted.total()


class Engine:
    """Runs jobs step by step.

    publish    takes the block events of a step, in order, and returns the sequence number of the last message
    on_crash   called on the engine's thread when a step raised; the engine has stopped then
    """

    def __init__(
        self,
        model: Model,
        vocabulary: Vocabulary,
        memory: KVMemory,
        scheduler: Scheduler,
        *,
        context: int,
        publish: Callable[[list[Event]], int],
        on_crash: Callable[[BaseException], None],
    ) -> None:
        self.context = context
        self.counters = Counters()
        self._model = model
        self._vocabulary = vocabulary
        self.memory = memory
        self._scheduler = scheduler
        self._landing = Landing(vocabulary)
        self._publish = publish
        self._on_crash = on_crash
        self._published = NO_SEQ
        self.load = Occupancy()  # replaced whole at every step, so any thread may read it
        self._inbox = Inbox()
        self._wake = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    @property
    def cached_tokens(self) -> int:
        """Prompt tokens that were not computed because whole blocks of their prefix were held."""
        return sum(self.work.reused)

    @property
    def work(self) -> Work:
        """What was computed, reused and put off."""
        return self._scheduler.work

    @property
    def draft_kv_bytes(self) -> int:
        """The most that a draft model's KV takes; 0 without one."""
        draft_model = self._scheduler.speculator.draft_model
        return 0 if draft_model is None else draft_model.kv_bytes

    @property
    def total_blocks(self) -> int:
        return self.memory.pool.total

    def start(self) -> None:
        self._thread.start()

    def warm_up(self, tokens: int = 64) -> None:
        """Computes a meaningless prompt, before start: touches the weights and takes the first measurement of rates."""
        tokens = min(tokens, self.context - 1)
        holding = self.memory.open(array("I", [0] * tokens), (), store=False)
        assert holding is not None
        slot = holding.slot
        began = time.perf_counter()
        for _ in range(2):
            self._model.forward([0] * tokens, [Row(slot, 0, tokens)], self.memory.layout)
        self._model.wait()
        self._set_prefill_rate(2 * tokens / (time.perf_counter() - began))
        times = self._scheduler.speculator.times
        for count in (1, _WARM_UP_DRAFT):
            began = time.perf_counter()
            self._model.forward([0] * count, [Row(slot, tokens - count, count, count)], self.memory.layout)
            self._model.wait()
            times.observe(1, int(count > 1), count - 1, time.perf_counter() - began)
        self.counters.decode_step_ms = times.plain(1) * 1000
        if self._scheduler.speculator.draft_model is not None:
            self._scheduler.speculator.draft_model.warm_up()
        self.memory.close(holding)
        self.load = self._measure_load()

    def stop(self) -> None:
        """Ends the thread after the step that is running; jobs that are not finished get no more frames."""
        self._stopping = True
        self._wake.set()
        self._thread.join()

    def call(self, action: Callable[[], T]) -> "Future[T]":
        """Runs action on the engine's thread, between two steps. WorkerError 503 once that has ended."""
        future = self._inbox.put(action)
        self._wake.set()
        return future

    def submit(self, request: GenerateRequest, grammars: list[Grammar], emit: Emit) -> None:
        """Queues a request. On the engine's thread; WorkerError 400 for a bad one, 409 or 503 if it can't be taken."""
        if len(request.tokens) >= self.context:
            message = f"the prompt has {len(request.tokens)} tokens; this model's context is {self.context}"
            raise WorkerError(400, "context", message, "tokens")
        self._check_ids(request)
        if request.accepted and len(request.accepted) != request.n:
            raise WorkerError(400, "bad_request", "accepted has an entry for each choice, or none", "accepted")
        if request.request_id in self._scheduler.jobs:
            raise WorkerError(409, "duplicate", "a request with this id is running", "request_id")
        job = Job(request, grammars, emit)
        drafter = self._scheduler.speculator.drafter
        job.sequences = [
            Sequence(job, index, self._vocabulary, self._landing, self.context, drafter()) for index in range(request.n)
        ]
        try:
            for sequence, accepted in zip(job.sequences, request.accepted, strict=False):
                sequence.replay(accepted)
            if request.n == 1:  # of several choices, all but the first get the prompt's KV from the first
                job.sequences[0].foresee()
        except GrammarLimitError:
            raise WorkerError(400, "grammar_too_complex", _TOO_LONG, "grammar") from None
        self._scheduler.add(job)
        self.counters.requests += 1
        self.counters.prompt_tokens += len(job.prompt)

    def _check_ids(self, request: GenerateRequest) -> None:
        # Here and not where they are used: an id beyond the vocabulary would stop the engine for everyone.
        last = len(self._vocabulary) - 1
        highest = {
            "tokens": max(request.tokens),
            "accepted": max((token for one in request.accepted for token in one.tokens), default=0),
            "sampling.stop_ids": max(request.sampling.stop_ids, default=0),
            "sampling.logit_bias": max(map(int, request.sampling.logit_bias), default=0),
        }
        for name, token in highest.items():
            if token > last:
                raise WorkerError(400, "bad_request", f"{name}: token ids end at {last}", name)

    def abort(self, request_id: str) -> bool:
        """Ends a request now. On the engine's thread; False when it is not running any more."""
        job = self._scheduler.jobs.get(request_id)
        if job is None:
            return False
        self.counters.aborted += 1
        self._scheduler.stop(job, "abort")
        self._retire()
        return True

    def release(self, request: ReleaseRequest, spans: list[Span]) -> int:
        """On the engine's thread: see KVMemory.release."""
        return self.memory.release(request.tag, request.session, array("I", request.tokens), spans)

    def retain(self, request: RetainRequest, spans: list[Span]) -> int:
        """On the engine's thread: see KVMemory.retain."""
        return self.memory.retain(request.tag, request.retention, array("I", request.tokens), spans)

    def snapshot(self, epoch: int) -> Snapshot:
        """On the engine's thread: the tree, with the number of the last event message that it includes."""
        self._publish_events()
        return Snapshot(epoch, self._published, self.memory.block_size, self.memory.snapshot())

    def step(self) -> bool:
        """One iteration; False when there was nothing to compute."""
        self._expire()
        self.memory.poll()
        self._scheduler.admit()
        began = time.perf_counter()
        batch = self._scheduler.next_batch()
        if batch is not None:
            planned = time.perf_counter() - began  # by much the most of it is a draft model's, if there is one
            self.load = self._measure_load()  # a step takes long; what was just admitted must show before its end
            self._compute(batch, planned)
        # Before `retire` ends a request: a session's next turn must find its last blocks in the gateway's index.
        self._publish_events()
        self._retire()
        return batch is not None

    def _retire(self) -> None:
        """Frees what finished sequences hold, and only then ends their jobs, with the load that is left."""
        ended = self._scheduler.retire()
        self.load = self._measure_load()
        for job in ended:
            job.end(self.load)

    def _publish_events(self) -> None:
        events = self.memory.take_events()
        if events:
            self._published = self._publish(events)

    def _measure_load(self) -> Occupancy:
        scheduler = self._scheduler
        prefill = [sequence.pending for sequence in scheduler.running if sequence.pending > 1]
        return Occupancy(
            waiting=len(scheduler.waiting),
            running=len(scheduler.running),
            queued_prefill_tokens=scheduler.waiting.tokens + sum(prefill),
            decode_sequences=len(scheduler.running) - len(prefill),
            free_blocks=self.memory.pool.free,
        )

    def _compute(self, batch: Batch, planned: float) -> None:
        began = time.perf_counter()
        logits = self._model.forward(batch.tokens, batch.rows, self.memory.layout).cpu().numpy()
        self._model.wait()  # without logits nothing has waited yet, and the time of this step would be the next one's
        self._scheduler.computed(batch)
        done = 0
        for sequence, row, drafts in zip(batch.sequences, batch.rows, batch.drafts, strict=True):
            scores = logits[done : done + row.wanted]
            done += row.wanted
            if row.wanted and not sequence.finished:  # one that failed has ended its siblings
                self._advance(sequence, scores, drafts)
        self._measure(batch, time.perf_counter() - began, planned)

    def _advance(self, sequence: Sequence, logits: Logits, drafts: list[int]) -> None:
        before = sequence.sent
        try:
            accepted = sequence.advance(logits, drafts)
        except GrammarLimitError:
            self._fail(sequence.job, "grammar_too_complex", _TOO_LONG)
            return
        except LogitsError:
            self._fail(sequence.job, "internal", _NO_NUMBERS)
            return
        if drafts:
            self._scheduler.verified(sequence, len(drafts), accepted)
            self.counters.drafted[sequence.source] += len(drafts)
            self.counters.accepted[sequence.source] += accepted
        self.counters.generated_tokens += sequence.sent - before

    def _fail(self, job: Job, code: str, message: str) -> None:
        """Ends a request with an error, and nothing else."""
        job.failure = ErrorFrame(code, message)
        self._scheduler.stop(job, "error")

    def _measure(self, batch: Batch, seconds: float, planned: float) -> None:
        counters = self.counters
        counters.steps += 1
        if batch.prefill_tokens >= _MIN_MEASURED_PREFILL:
            self._set_prefill_rate(_average(counters.prefill_tps, batch.prefill_tokens / seconds))
        elif batch.prefill_tokens == 0:
            counters.decode_step_ms = _average(counters.decode_step_ms, (planned + seconds) * 1000)
            long = sum(row.count > 1 for row in batch.rows)
            self._scheduler.speculator.times.observe(
                len(batch.rows), long, len(batch.tokens) - len(batch.rows), seconds
            )

    def _set_prefill_rate(self, tokens_per_second: float) -> None:
        self.counters.prefill_tps = self.memory.reuse.prefill_tps = tokens_per_second

    def _expire(self) -> None:
        now = time.monotonic()
        for job in [job for job in self._scheduler.jobs.values() if job.deadline <= now]:
            self._scheduler.stop(job, "deadline")
        self._retire()

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._inbox.work()
                if not self.step():
                    self._idle()
        except BaseException as error:  # whatever it was, the process must not look healthy
            self._on_crash(error)
        finally:
            self._inbox.close()

    def _idle(self) -> None:
        self._wake.wait(_LOADING_SECONDS if self._scheduler.loading else _IDLE_SECONDS)
        self._wake.clear()


def _average(old: float, new: float) -> float:
    return new if old == 0 else old + _SMOOTHING * (new - old)
