"""An engine that a test steps by hand, and the replies that it gives."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

from cacheplane.identity import Namespace
from cacheplane.wire import Event
from tests.worker.kv.layouts import LayoutClass
from worker.engine import Engine
from worker.grammar import Grammar
from worker.kv import KVLimits, KVMemory, SlotLayout
from worker.model import Model
from worker.scheduler import Scheduler
from worker.speculation import Speculator
from worker.tokenizer import Vocabulary
from worker.wire import Delta, End, Finish, Frame, GenerateRequest, Sampling, SpanWire, Start, TokenLogprob

ACME = Namespace(b"a" * 32)
GLOBEX = Namespace(b"g" * 32)
BLOCK = 8
_NUMBERS = count()


def ask(
    tokens: Sequence[int],
    *,
    request_id: str = "",
    namespace: Namespace = ACME,
    n: int = 1,
    store: bool = True,
    deadline_ms: int = 600_000,
    sampling: Sampling | None = None,
    tag: str = "",
    priority: int = 50,
) -> GenerateRequest:
    """A request; greedy, four tokens and no early end unless `sampling` says otherwise."""
    return GenerateRequest(
        request_id=request_id or f"request-{next(_NUMBERS)}",
        tokens=list(tokens),
        spans=[SpanWire(0, namespace.hex)],
        sampling=sampling or greedy(4),
        n=n,
        store=store,
        deadline_ms=deadline_ms,
        tag=tag,
        priority=priority,
    )


def greedy(max_tokens: int) -> Sampling:
    return Sampling(max_tokens=max_tokens, temperature=0, ignore_eos=True, logprobs=20)


@dataclass(slots=True)
class Reply:
    """The frames that one request was answered with."""

    frames: list[Frame] = field(default_factory=list)

    @property
    def start(self) -> Start:
        assert isinstance(self.frames[0], Start)
        return self.frames[0]

    @property
    def end(self) -> End:
        assert isinstance(self.frames[-1], End)
        return self.frames[-1]

    def tokens(self, index: int = 0) -> list[int]:
        return [token for delta in self._deltas(index) for token in delta.tokens]

    def text(self, index: int = 0) -> str:
        return "".join(delta.text for delta in self._deltas(index))

    def logprobs(self, index: int = 0) -> list[TokenLogprob]:
        return [logprob for delta in self._deltas(index) for logprob in delta.logprobs or []]

    def finish(self, index: int = 0) -> Finish:
        found = [frame for frame in self.frames if isinstance(frame, Finish) and frame.index == index]
        assert len(found) == 1
        return found[0]

    def check(self, n: int = 1) -> None:
        """The grammar of frames: a start; for each choice deltas, then one finish; an end that counts them."""
        first, *middle, last = self.frames
        assert isinstance(first, Start)
        assert isinstance(last, End)
        for index in range(n):
            own = [frame for frame in middle if isinstance(frame, Delta | Finish) and frame.index == index]
            assert [type(frame) for frame in own] == [Delta] * (len(own) - 1) + [Finish]
            assert self.finish(index).completion_tokens == len(self.tokens(index))
        assert all(isinstance(frame, Delta | Finish) and frame.index < n for frame in middle)
        assert last.completion_tokens == sum(self.finish(index).completion_tokens for index in range(n))
        assert last.prompt_tokens == first.prompt_tokens

    def _deltas(self, index: int) -> list[Delta]:
        return [frame for frame in self.frames if isinstance(frame, Delta) and frame.index == index]


class Rig:
    """Slots, blocks, scheduler and engine around a model, without threads; freed blocks are filled with NaN."""

    def __init__(
        self,
        model: Model,
        vocabulary: Vocabulary,
        *,
        slots: int = 4,
        context: int = 256,
        blocks: int = 64,
        budget: int = 32,
        max_waiting: int = 32,
        limits: KVLimits | None = None,
        speculator: Speculator | None = None,
        layout: LayoutClass = SlotLayout,
    ) -> None:
        tensors = layout(model.kv_shape, slots=slots, context=context, blocks=blocks, block_size=BLOCK)
        self.memory = KVMemory(tensors, limits, spoil_freed=True)
        self.scheduler = Scheduler(self.memory, budget=budget, max_waiting=max_waiting, speculator=speculator)
        self.events: list[Event] = []
        self.engine = Engine(
            model,
            vocabulary,
            self.memory,
            self.scheduler,
            context=tensors.context,
            publish=self._publish,
            on_crash=_fail,
        )

    def submit(self, request: GenerateRequest, grammars: Sequence[Grammar] = ()) -> Reply:
        reply = Reply()
        self.engine.submit(request, list(grammars), reply.frames.append)
        return reply

    def run(self) -> None:
        """Steps until nothing is left to do."""
        while self.engine.step() or self.scheduler.loading:
            pass

    def complete(self, request: GenerateRequest, grammars: Sequence[Grammar] = ()) -> Reply:
        reply = self.submit(request, grammars)
        self.run()
        reply.check(request.n)
        return reply

    def check_idle(self) -> None:
        """Nothing is left of the requests that ran: no slot, no job, no hold on the tree; and the books balance."""
        assert not self.scheduler.jobs
        assert not self.scheduler.running
        assert not self.scheduler.loading
        assert len(self.scheduler.waiting) == 0
        assert self.scheduler.fairness.busy == 0
        assert self.memory.slots.free == self.memory.slots.total
        assert all(node.users == 0 for node in [self.memory.tree.root, *self.memory.tree.walk()])
        self.check_drafts()
        self.memory.check()

    def check_drafts(self) -> None:
        """A draft model holds slots for running sequences alone."""
        if self.scheduler.speculator.draft_model is not None:
            self.scheduler.speculator.draft_model.check(self.scheduler.running)

    def _publish(self, events: list[Event]) -> int:
        self.events.extend(events)
        return len(self.events)


def _fail(error: BaseException) -> None:
    raise error
