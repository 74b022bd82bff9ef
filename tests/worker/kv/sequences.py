"""Sequences over a KV memory with real, small tensors, told by the tokens and namespaces that lead to a position."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import xxhash
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from torch import Tensor

from cacheplane.identity import Span
from tests.worker.kv.layouts import LayoutClass, kept_of, write, written
from tests.worker.rig import ACME
from worker.kv import Holding, KVMemory, PagedLayout
from worker.kv.shape import KVShape

SHAPE = KVShape(layers=1, kv_heads=1, head_dim=8, dtype=torch.float32)  # for the kernels in C too
BLOCK, CONTEXT = 4, 32
PUBLIC = [Span(0, ACME)]


def memory_of(layout: LayoutClass, *, slots: int = 3, blocks: int = 6) -> KVMemory:
    """Room for so many stored blocks, and over pages for the unfinished block of one sequence beside them."""
    total = blocks + (issubclass(layout, PagedLayout))
    tensors = layout(SHAPE, slots=slots, context=CONTEXT, blocks=total, block_size=BLOCK)
    return KVMemory(tensors, spoil_freed=True)


def marks(holding: Holding, tokens: Sequence[int], start: int, end: int) -> tuple[Tensor, Tensor]:
    """Stands for the KV of positions start .. end - 1: another one for another prefix, also for
    the same tokens of another namespace, and exact in every dtype."""
    found = [_mark(holding, tokens[: position + 1]) for position in range(start, end)]
    rows = torch.tensor(found, dtype=torch.float32).view(-1, SHAPE.head_dim)
    keys = rows[None, :, None].expand(SHAPE.layers, -1, SHAPE.kv_heads, -1)
    return keys, 1 - keys


def _mark(holding: Holding, tokens: Sequence[int]) -> list[int]:
    seen = [(start, one.key) for start, one in holding.namespaces.items() if start < len(tokens)]
    digest = xxhash.xxh3_128_digest(repr((list(tokens), seen)).encode())
    return list(digest[: SHAPE.head_dim])


def compute(memory: KVMemory, holding: Holding, tokens: Sequence[int], start: int, end: int) -> None:
    """Writes the KV of positions start .. end - 1 into the slot."""
    if end > start:
        write(memory.layout, holding.slot, start, *marks(holding, tokens, start, end))


def check_slot(memory: KVMemory, holding: Holding, tokens: Sequence[int], end: int) -> None:
    """The first `end` positions of the slot hold the KV of these tokens, in the namespaces of the sequence."""
    expected = marks(holding, tokens, 0, end)
    for found, part in zip(written(memory.layout, holding.slot, end), expected, strict=True):
        assert torch.equal(found, kept_of(memory.layout, part))


def live(memory: KVMemory, tokens: Sequence[int], spans: Sequence[Span] = PUBLIC) -> int:
    """Opens, computes, stores and closes one sequence; how many of its tokens were reused."""
    raw = array("I", tokens)
    holding = memory.open(raw, spans)
    assert holding is not None
    check_slot(memory, holding, tokens, holding.reused)
    compute(memory, holding, tokens, holding.reused, len(tokens))
    memory.extend(holding, raw, len(tokens))
    memory.close(holding)
    memory.check()
    return holding.cached.device


def _prompt(stem: list[int], cut: int, tail: list[int]) -> list[int]:
    return [*stem[:cut], *tail]


# Of few beginnings, so that they meet: in a block, at a barrier, and behind it.
prompts = st.builds(
    _prompt,
    stem=st.sampled_from([[0] * 13, [0] * 8 + [1] * 5]),
    cut=st.sampled_from([13, 13, 12, 10, 9, 7, 5, 4]),
    tail=st.lists(st.integers(0, 1), max_size=3),
)


@dataclass(slots=True)
class Running:
    tokens: list[int]
    spans: list[Span]
    holding: Holding
    computed: int
    store: bool = True


class Sequences(RuleBasedStateMachine):
    """What runs on a KV memory, and how it gets further."""

    layout: LayoutClass
    one_always_fits = True

    def __init__(self, memory: KVMemory) -> None:
        super().__init__()
        self.memory = memory
        self.running: list[Running] = []

    @precondition(lambda self: self.running)
    @rule(data=st.data(), count=st.sampled_from([16, 1, 2, 3, 6]), drafts=st.sampled_from([0, 0, 1, 5]))
    def step(self, data: st.DataObject, count: int, drafts: int) -> None:
        """Computes the next tokens of a sequence, known or newly generated, and drafts that turn out to be wrong."""
        one = data.draw(st.sampled_from(self.running))
        context = self.memory.layout.context
        end, beyond = min(one.computed + count, context), min(one.computed + count + drafts, context)
        if not self.memory.prepare(one.holding, one.computed, beyond):
            assert issubclass(self.layout, PagedLayout)
            assert len(self.running) > 1 or not self.one_always_fits
            self.running.remove(one)
            self.memory.close(one.holding)  # it is preempted
            return
        one.tokens += [1] * (end - len(one.tokens))
        compute(self.memory, one.holding, [*one.tokens[:end], *[9] * (beyond - end)], one.computed, beyond)
        one.computed = end
        before = one.holding.stored, len(self.memory.tree)
        self.memory.extend(one.holding, array("I", one.tokens), end)
        assert one.store or (one.holding.stored, len(self.memory.tree)) == before
        for other in self.running:
            check_slot(self.memory, other.holding, other.tokens, other.computed)

    @precondition(lambda self: self.running)
    @rule(data=st.data(), tail=st.lists(st.integers(0, 1), max_size=3))
    def fork(self, data: st.DataObject, tail: list[int]) -> None:
        """Another sequence begins as one that runs, and goes its own way."""
        one = data.draw(st.sampled_from(list(self.running)))
        count = data.draw(st.integers(0, one.computed))
        holding = self.memory.fork(one.holding, count)
        if holding is None:
            assert not self.memory.slots.free or issubclass(self.layout, PagedLayout)
            return
        tokens = one.tokens[:count] + tail
        check_slot(self.memory, holding, tokens, count)
        self.running.append(Running(tokens, one.spans, holding, count, one.store))
