"""A request, and the sequences that answer it: one for each choice that was asked for."""

import time
from array import array
from collections.abc import Callable
from functools import partial

from cacheplane.identity import Namespace, Span
from worker.allowed import Continuations
from worker.drafting import Drafter, Price
from worker.grammar import Grammar, Landing, landing_room
from worker.kv import Holding
from worker.preview import Preview
from worker.sampler import Logits, Sampler
from worker.text import TextStream
from worker.tokenizer import Vocabulary
from worker.wire import (
    Accepted,
    Cached,
    Delta,
    End,
    ErrorFrame,
    Finish,
    Frame,
    GenerateRequest,
    Occupancy,
    Start,
    Timings,
    TokenLogprob,
    WorkerError,
)

Emit = Callable[[Frame], None]


_HEAD_START = 1.0  # seconds that a request of one priority more may come later and still be served first


class Job:
    """One request from its arrival to its last frame.

    deadline   on the monotonic clock, seconds
    rank       place within its tag, lowest first: the arrival, in seconds, less a head start for priority. So a
               request ages as it waits: later ones of higher priority pass it for as long as their head start only
    emit       takes frames; called on the engine's thread
    """

    def __init__(self, request: GenerateRequest, grammars: list[Grammar], emit: Emit) -> None:
        self.id = request.request_id
        self.tag = request.tag
        self.store = request.store
        self.prompt = array("I", request.tokens)
        self.spans = [Span(span.start, Namespace.from_hex(span.namespace)) for span in request.spans]
        self.namespaces = {span.start: span.namespace for span in self.spans}
        self.retention = request.retention
        self.params = request.sampling
        self.seed = request.sampling.seed if request.sampling.seed is not None else time.time_ns()
        self.grammars = grammars
        self.emit = emit
        self.arrived = time.monotonic()
        self.priority = request.priority
        self.rank = self.arrived - _HEAD_START * request.priority
        self.deadline = self.arrived + request.deadline_ms / 1000
        self.admitted: float | None = None
        self.first_token: float | None = None
        self.sequences: list[Sequence] = []
        self.failure: ErrorFrame | None = None  # set before its sequences are ended

    def start(self, cached: Cached) -> None:
        """The first sequence has a slot, with these prompt tokens already computed."""
        self.admitted = time.monotonic()
        self.emit(Start(len(self.prompt), cached, (self.admitted - self.arrived) * 1000))
        for sequence in self.sequences:
            sequence.started()

    def end(self, load: Occupancy) -> None:
        """All sequences have ended; load is what the engine has left to do."""
        if self.failure is not None:
            self.emit(self.failure)
            return
        now = time.monotonic()
        admitted = self.admitted or now
        first = self.first_token or now
        timings = Timings((admitted - self.arrived) * 1000, (first - admitted) * 1000, (now - first) * 1000)
        self.emit(End(len(self.prompt), sum(sequence.sent for sequence in self.sequences), timings, load))


class Sequence:
    """One choice of a request: its tokens, how many of them are computed, and how the next is chosen.

    It may lose its slot and get another: then its reply pauses, and goes on as if nothing had happened.

    tokens      prompt and generated tokens
    computed    tokens whose KV is in the slot; the rest is pending
    furthest    the most that was ever computed
    protected   it may not lose what it computes in its slot before so many are computed
    """

    def __init__(
        self,
        job: Job,
        index: int,
        vocabulary: Vocabulary,
        landing: Landing,
        context: int,
        drafter: Drafter | None = None,
    ) -> None:
        params = job.params
        self.job = job
        self.index = index
        self.rank = (job.rank, index)
        self.tokens = array("I", job.prompt)
        self.computed = 0
        self.furthest = 0
        self.protected = 0
        self.holding: Holding | None = None
        self.finished: str | None = None
        self._vocabulary = vocabulary
        self._landing = landing
        self._grammar = job.grammars[index] if job.grammars else None
        self._sampler = Sampler(params, job.seed, index, job.prompt)
        self._text = TextStream(params.stop, params.min_tokens)
        self.drafter = drafter
        self._stop_ids = set(params.stop_ids)
        if self._grammar is not None or not params.ignore_eos:
            self._stop_ids |= set(vocabulary.stop_ids)
        self._limit = min(params.max_tokens, context - len(job.prompt))
        self._room = landing_room(self._limit)
        self._known = len(self.tokens)  # when it got its slot
        self._began = 0
        self._silent = False
        self._sent = len(self.tokens)
        self._unsent: list[str] = []  # the text of those that were taken and not sent

    @property
    def pending(self) -> int:
        """Tokens that are known and not computed."""
        return len(self.tokens) - self.computed

    @property
    def generated(self) -> int:
        return len(self.tokens) - len(self.job.prompt)

    @property
    def sent(self) -> int:
        """Generated tokens that were emitted, here or by another worker."""
        return self._sent - len(self.job.prompt)

    @property
    def source(self) -> str:
        """Where its last drafts came from; see worker/drafting.py."""
        assert self.drafter is not None
        return self.drafter.source

    @property
    def left(self) -> int:
        """Tokens that it may still generate."""
        return self._limit - self.generated

    @property
    def prefilling(self) -> bool:
        """Whether it computes what it came with to its slot; after that, what it generates."""
        return self.computed < self._known

    @property
    def stay(self) -> int:
        """Tokens computed since it got its slot."""
        return self.computed - self._began

    @property
    def forks_from(self) -> "Sequence | None":
        """Another choice of its request, in a slot, that has computed their prompt: all of it but its last token, after
        which each choice wants logits of its own."""
        prompt = len(self.job.prompt)
        if prompt < 2 or len(self.tokens) > prompt:
            return None
        known = (one for one in self.job.sequences if one.holding is not None and one.computed >= prompt - 1)
        return next(known, None)

    @property
    def is_loading(self) -> bool:
        """Whether blocks that it begins with are still on their way to its slot."""
        return self.holding is not None and self.holding.loading

    @property
    def is_safe_to_stop(self) -> bool:
        """Whether losing its slot again would not undo its progress: it has made enough, or none in this slot."""
        return self.computed >= self.protected or self.stay == 0

    def replay(self, accepted: Accepted) -> None:
        """Takes the tokens that it has got from another worker, without sending them; before it is queued.

        WorkerError 400 when they cannot be this reply: the grammar forbids one, or there are more after its end.
        """
        for count, token in enumerate(accepted.tokens, 1):
            if not self._take(token, []) and (self.generated < count or count < len(accepted.tokens)):
                raise WorkerError(400, "bad_request", "these tokens are not of this reply", "accepted")
        self.finished = "stop" if accepted.finished else self.finished
        self._silent = accepted.finished
        self.furthest = self._sent = len(self.tokens)  # what another worker has generated is not charged here

    def foresee(self) -> None:
        """Takes the tokens that its grammar forces now, to be computed with the prompt; before it is queued.

        All but the last of them, which is chosen when the prompt is computed: until then the reply can't be over,
        unless they have a stop string.
        """
        for token in self._forced()[: self.left][:-1] if self.finished is None else []:
            if not self._take(token, self._unsent):
                break

    def started(self) -> None:
        """Its job has a slot. A reply that was over when it was replayed says so now."""
        if self.finished is not None and not self._silent:
            self._send(None)
            self._close()

    def take(self, holding: Holding) -> None:
        """It has a slot, which may not be loaded yet."""
        self.holding = holding
        self._known = len(self.tokens)

    def begin(self) -> None:
        """Its slot is loaded."""
        assert self.holding is not None
        self.computed = self._began = self.holding.reused
        self.furthest = max(self.furthest, self.computed)

    def move_on(self, count: int) -> None:
        """The next `count` tokens are computed."""
        self.computed += count
        self.furthest = max(self.furthest, self.computed)

    def pause(self, progress: int) -> Holding:
        """It loses its slot, and is safe in its next one until it is `progress` tokens further than ever."""
        holding = self.holding
        assert holding is not None
        self.protected = self.furthest + progress
        self.holding = None
        self.computed = 0
        return holding

    def draft(self, most: int, price: Price) -> list[int]:
        """Tokens that may well come after those that it has, to be computed along with them; often none."""
        most = min(most, self.left - 1)
        if self.drafter is None or most <= 0:
            return []
        return self._possible(self.drafter.propose(self.tokens, most, price), most)

    def preview(self) -> Preview:
        """What it would go on with by the logits of another model."""
        grammar = None if self._grammar is None else self._grammar.fork()
        return Preview(self._sampler, grammar, self.generated, self._stop_ids, self.job.params.min_tokens)

    def take_guesses(self, guesses: list[int]) -> list[int]:
        """Those of the guesses that may be drafts. When none may, or there are none, that is as if one was rejected."""
        assert self.drafter is not None
        self.drafter.guessed()
        drafts = self._possible(guesses, len(guesses))
        if not drafts:
            self.drafter.verified(0, rejected=True)
        return drafts

    def _possible(self, found: list[int], most: int) -> list[int]:
        """What of it the reply may have before its end, and what its grammar forces behind."""
        end = next((at for at, token in enumerate(found) if token in self._stop_ids), len(found))
        if self._grammar is None or not end:
            return found[:end]
        return self._grammar.follow(found[:end])[:most]

    def advance(self, logits: Logits, drafts: list[int]) -> int:
        """Chooses tokens, takes the forced ones behind each, and emits what became final.

        The first choice is made in any case, the next as long as what was taken is what had been drafted.

        logits   [1 + drafts, vocabulary]: after the last token, and after each draft
        returns  how many drafts were accepted: tokens of the sequence whose KV is computed already
        """
        if self.job.first_token is None:
            self.job.first_token = time.monotonic()
        accepted = 0
        logprobs: list[TokenLogprob] = []
        while self.finished is None:
            before = len(self.tokens)
            self._choose(logits[accepted], logprobs)
            taken = self.tokens[before:]
            same = common(taken, drafts[accepted:])
            accepted += same
            if same < len(taken):
                break
        if self.drafter is not None and drafts:
            self.drafter.verified(accepted, rejected=self.finished is None and accepted < len(drafts))
        self._send(logprobs or None)
        if self.finished:
            self._close()
        return accepted

    def finish(self, reason: str) -> None:
        """Ends the sequence from outside: abort or deadline, or nothing more is allowed."""
        if self.finished is None:
            self.finished = reason
            if self.job.failure is None:
                self._close()

    def _choose(self, logits: Logits, logprobs: list[TokenLogprob]) -> None:
        """Takes one token by the logits, and those that it forces."""
        choice = self._sampler.choose(logits, self.generated, self._allowed())
        if choice is None:
            self.finished = "stop"
            return
        before = len(self.tokens)
        if self._take(choice.token, self._unsent):
            for token in self._forced():
                if not self._take(token, self._unsent):
                    break
        if choice.logprob is not None and len(self.tokens) > before:
            logprobs.append(choice.logprob)

    def _allowed(self) -> Continuations | None:
        goes_on = self.generated < self.job.params.min_tokens
        if self._grammar is None:
            return Continuations(None, len(self._vocabulary), self._stop_ids) if goes_on else None
        return Continuations(
            self._grammar,
            len(self._vocabulary),
            banned=self._stop_ids if goes_on or self.job.params.ignore_eos else (),
            steer=partial(self._landing.steer, left=self.left) if self.left <= self._room else None,
        )

    def _take(self, token: int, texts: list[str]) -> bool:
        """Appends one token; False when the sequence ends with it or before it."""
        if token in self._stop_ids or (self._grammar is not None and not self._grammar.accept(token)):
            self.finished = "stop"
            return False
        self.tokens.append(token)
        self._sampler.accept(token)
        texts.append(self._text.feed(self._vocabulary.texts[token]))
        if self._text.stopped is not None or (self._grammar is not None and self._grammar.is_done):
            self.finished = "stop"
        elif self.generated >= self._limit:
            self.finished = "length"
        return self.finished is None

    def _forced(self) -> list[int]:
        """Tokens that the grammar leaves no choice about; none when their log probabilities are wanted."""
        if self._grammar is None or self.job.params.logprobs is not None:
            return []
        return self._grammar.forced()

    def _send(self, logprobs: list[TokenLogprob] | None) -> None:
        """Emits the tokens that were not sent yet."""
        self._emit(list(self.tokens[self._sent :]), "".join(self._unsent), logprobs)
        self._sent, self._unsent = len(self.tokens), []

    def _emit(self, tokens: list[int], text: str, logprobs: list[TokenLogprob] | None) -> None:
        if tokens or text:
            self.job.emit(Delta(self.index, text, tokens, logprobs))

    def _close(self) -> None:
        if not self._unsent:  # else it never came to say anything, and what is held back belongs behind that
            self._emit([], self._text.finish(), None)
        assert self.finished is not None
        self.job.emit(Finish(self.index, self.finished, self.sent, self._text.stopped))


def common(one: "array[int]", other: list[int]) -> int:
    """How many tokens two runs begin with in common."""
    pairs = zip(one, other, strict=False)
    return next((at for at, (ours, theirs) in enumerate(pairs) if ours != theirs), min(len(one), len(other)))
