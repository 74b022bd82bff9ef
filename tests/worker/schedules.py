"""Random schedules of requests that disturb each other, and the replies that each of them has to give all the same."""

import time
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event

import msgspec
import pytest
from hypothesis import strategies as st

from cacheplane.identity import Namespace
from tests.worker.kv.layouts import LayoutClass
from tests.worker.kv.tiered import PATIENCE_S
from tests.worker.rig import ACME, BLOCK, GLOBEX, Reply, Rig, ask, greedy
from worker.kv import KVLimits, SlotLayout
from worker.kv.blockfile import BlockFile
from worker.model import Model
from worker.tokenizer import Vocabulary
from worker.wire import GenerateRequest, Retention, RetentionRange, SpanWire, TokenLogprob

LONGEST = 40 + 6 + 6  # stem, tail and reply of a plan
STEMS = [list(range(10, 34)), list(range(10, 26)) + [90] * 16, [70] * 40]


@dataclass(frozen=True)
class Plan:
    """One request of a schedule: a shared stem, a tail of its own, and the steps at which it comes and is disturbed.

    barrier   token at which another namespace begins
    lease     priority at which its blocks are to be kept
    """

    stem: int
    cut: int
    tail: list[int]
    namespace: Namespace
    barrier: int | None
    max_tokens: int
    n: int
    store: bool
    lease: int | None
    tag: str
    priority: int
    arrives: int
    preempted: int | None
    aborted: int | None

    @property
    def prompt(self) -> list[int]:
        return STEMS[self.stem][: self.cut] + self.tail

    def request(self) -> GenerateRequest:
        plain = ask(
            self.prompt,
            namespace=self.namespace,
            n=self.n,
            store=self.store,
            sampling=greedy(self.max_tokens),
            tag=self.tag,
            priority=self.priority,
        )
        spans = plain.spans
        if self.barrier is not None and self.barrier < len(self.prompt):
            spans = [*spans, SpanWire(self.barrier, GLOBEX.hex)]
        lease = None if self.lease is None else Retention([RetentionRange(self.lease, 60_000)], "session")
        return msgspec.structs.replace(plain, spans=spans, retention=lease)


plans = st.builds(
    Plan,
    stem=st.integers(0, len(STEMS) - 1),
    cut=st.sampled_from([0, 5, 16, 23, 24, 31, 32, 40, 40]),
    tail=st.lists(st.integers(3, 280), min_size=1, max_size=6),
    namespace=st.sampled_from([ACME, GLOBEX]),
    barrier=st.sampled_from([None, None, BLOCK, 2 * BLOCK]),
    max_tokens=st.integers(1, 6),
    n=st.sampled_from([1, 1, 1, 2]),
    store=st.sampled_from([True, True, True, False]),
    lease=st.sampled_from([None, None, 0, 90]),
    tag=st.sampled_from("abc"),
    priority=st.sampled_from([0, 50, 50, 100]),
    arrives=st.integers(0, 8),
    preempted=st.one_of(st.none(), st.integers(1, 14)),
    aborted=st.one_of(st.none(), st.none(), st.integers(0, 14)),
)


class Stall:
    """Holds up who loads blocks and who writes them to disk, now and then."""

    def __init__(self, rig: Rig) -> None:
        self._threads = rig.memory.reuse._loader._thread, rig.memory.tiers.disk._writer
        self._gate: Event | None = None

    def toggle(self) -> None:
        if self._gate is not None:
            self.end()
            return
        self._gate = Event()
        for thread in self._threads:
            thread.submit(self._gate.wait, PATIENCE_S)

    def end(self) -> None:
        if self._gate is not None:
            self._gate.set()
            self._gate = None


def play(rig: Rig, schedule: list[Plan], stalls: Collection[int] = ()) -> list[Reply]:
    """Runs a schedule to its end; preemptions and aborts come between steps.

    stalls   steps at which blocks on their way are held up, or go on
    """
    stall = Stall(rig)
    replies: dict[int, Reply] = {}
    requests: dict[int, GenerateRequest] = {}
    last = max(15, *(plan.arrives for plan in schedule))
    for step in range(400):
        if step in stalls:
            stall.toggle()
        for number, plan in enumerate(schedule):
            if plan.arrives == step:
                requests[number] = plan.request()
                replies[number] = rig.submit(requests[number])
            if plan.preempted == step and number in requests:
                _preempt(rig, requests[number].request_id)
            if plan.aborted == step and number in requests:
                rig.engine.abort(requests[number].request_id)
        if not _step(rig, stall) and step > last:
            break
    stall.end()
    return [replies[number] for number in range(len(schedule))]


def _step(rig: Rig, stall: Stall) -> bool:
    """A step that computes something, once there is something to compute; False when nothing is left. The books balance
    after each."""
    while not rig.engine.step():
        if not rig.scheduler.loading:
            return False
        stall.end()
        time.sleep(0.0002)  # the loader needs the interpreter too
    rig.memory.poll()
    rig.memory.check()
    return True


def _preempt(rig: Rig, request_id: str) -> None:
    for sequence in list(rig.scheduler.running):
        if sequence.job.id == request_id and not sequence.is_loading:
            rig.scheduler.preempt(sequence)


def below(layout: LayoutClass, model: Model, folder: Path, *, host: int, disk: int) -> KVLimits:
    """Room for so many blocks on host and disk, where every block that leaves the device goes."""
    shape = layout(model.kv_shape, slots=1, context=64, blocks=1, block_size=BLOCK).shape
    disk_bytes = disk * BlockFile(shape, BLOCK, "tiny").size
    return KVLimits(host * BLOCK * shape.bytes_per_token, disk_bytes, folder, "tiny", gate=0)


def apart(schedule: list[Plan], steps: int) -> list[Plan]:
    """With so many steps more between two arrivals: so that what has left the device is asked for."""
    return [replace(plan, arrives=plan.arrives + steps * number) for number, plan in enumerate(schedule)]


class Cold:
    """The reference: each prompt alone, whole in one step, in an engine that has seen nothing."""

    def __init__(self, model: Model, vocabulary: Vocabulary, layout: LayoutClass = SlotLayout) -> None:
        self._model, self._vocabulary, self._layout = model, vocabulary, layout
        self._known: dict[tuple[int, ...], Reply] = {}

    def reply(self, prompt: list[int]) -> Reply:
        """Greedy, as many tokens as any plan asks for."""
        if tuple(prompt) not in self._known:
            rig = Rig(self._model, self._vocabulary, slots=1, budget=256, layout=self._layout)
            self._known[tuple(prompt)] = rig.complete(ask(prompt, sampling=greedy(6)))
        return self._known[tuple(prompt)]

    def expect(self, prompt: list[int], reply: Reply, index: int = 0) -> None:
        """A reply begins as the reference does: the same tokens, and log probabilities within 1e-5."""
        expected, tokens = self.reply(prompt), reply.tokens(index)
        assert tokens == expected.tokens()[: len(tokens)]
        for one, other in zip(reply.logprobs(index), expected.logprobs()[: len(tokens)], strict=True):
            _expect_same(one, other)


def _expect_same(one: TokenLogprob, other: TokenLogprob) -> None:
    assert one.logprob == pytest.approx(other.logprob, abs=1e-5)
    reference = dict(other.top)
    assert all(reference[token] == pytest.approx(value, abs=1e-5) for token, value in one.top if token in reference)
