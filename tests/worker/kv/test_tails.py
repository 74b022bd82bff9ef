"""What a session's next turn finds behind the last full block of the turn before."""

from array import array
from collections.abc import Sequence

import pytest

from cacheplane.identity import Span
from tests.worker.kv.layouts import LayoutClass
from tests.worker.kv.sequences import BLOCK, CONTEXT, PUBLIC, SHAPE, check_slot, compute, memory_of
from tests.worker.kv.test_reuse import opened
from tests.worker.rig import ACME, GLOBEX
from worker.kv import KVLimits, KVMemory
from worker.wire import Cached

TURN = [1, 2, 3, 4, 5, 6, 7]  # a block, and three tokens behind it


def ended(memory: KVMemory, tokens: Sequence[int], spans: Sequence[Span] = PUBLIC, *, store: bool = True) -> None:
    """A sequence that has computed these tokens, and is over."""
    holding = opened(memory, tokens, spans, store=store)
    compute(memory, holding, tokens, holding.reused, len(tokens))
    memory.extend(holding, array("I", tokens), len(tokens))
    memory.keep_tail(holding, array("I", tokens), len(tokens))
    memory.close(holding)
    memory.check()


def partial(memory: KVMemory, tokens: Sequence[int], spans: Sequence[Span] = PUBLIC) -> int:
    """Tokens beyond whole blocks that a sequence begins with; it leaves nothing behind."""
    holding = opened(memory, tokens, spans, store=False)
    memory.close(holding)
    memory.check()
    return holding.cached.partial


@pytest.mark.parametrize(
    ("tokens", "shared"),
    [
        ([*TURN, 8, 9], 3),
        ([*TURN, 8], 3),
        (TURN, 2),  # one is left to compute
        ([*TURN[:6], 9, 9], 2),
        ([*TURN[:4], 9, 9], 0),
        ([*TURN[:3], 9, 9, 9], 3),  # of the full block
        ([9, *TURN], 0),
    ],
)
def test_the_next_turn_goes_on_where_the_last_one_ended(layout: LayoutClass, tokens: list[int], shared: int) -> None:
    memory = memory_of(layout)
    ended(memory, TURN)
    assert partial(memory, tokens) == shared


def test_it_is_the_sequences_own_copy(layout: LayoutClass) -> None:
    memory = memory_of(layout)
    ended(memory, TURN)
    one, other = [*TURN, 8, 9, 10], [*TURN, 20, 21, 22]
    first, second = opened(memory, one), opened(memory, other)
    assert first.cached == second.cached == Cached(device=4, partial=3)
    for holding, tokens in ((first, one), (second, other)):
        compute(memory, holding, tokens, holding.reused, len(tokens))
        memory.extend(holding, array("I", tokens), len(tokens))
    check_slot(memory, first, one, len(one))
    check_slot(memory, second, other, len(other))
    memory.close(first)
    memory.close(second)
    assert partial(memory, [*TURN, 30]) == 3
    memory.check()


def test_a_block_that_has_more_in_common_goes_before(layout: LayoutClass) -> None:
    memory = memory_of(layout)
    ended(memory, [*TURN[:5], 9])
    ended(memory, [*TURN, 8])
    assert partial(memory, [*TURN[:6], 30, 31]) == 2
    assert partial(memory, [*TURN[:5], 9, 30]) == 2


def test_a_short_prompt_leaves_one_too(layout: LayoutClass) -> None:
    memory = memory_of(layout)
    ended(memory, [1, 2])
    assert partial(memory, [1, 2, 3]) == 2
    assert len(memory.tree) == 0


def test_nobody_finds_that_of_another_namespace(layout: LayoutClass) -> None:
    memory = memory_of(layout)
    ended(memory, TURN)
    assert partial(memory, [*TURN, 8], [Span(0, GLOBEX)]) == 0
    assert partial(memory, [*TURN, 8], [Span(0, ACME), Span(BLOCK, GLOBEX)]) == 0
    ended(memory, [1, 2], [Span(0, GLOBEX)])
    assert partial(memory, [1, 2, 3]) == 2  # of the full block
    assert partial(memory, [*TURN, 8]) == 3  # theirs did not take its place


def test_what_shall_not_be_stored_leaves_none(layout: LayoutClass) -> None:
    memory = memory_of(layout)
    ended(memory, TURN, store=False)
    assert (len(memory.tails), partial(memory, [*TURN, 8])) == (0, 0)


def test_one_that_nobody_wanted_makes_room(layout: LayoutClass) -> None:
    tensors = layout(SHAPE, slots=2, context=CONTEXT, blocks=12, block_size=BLOCK)
    memory = KVMemory(tensors, KVLimits(tails=2), spoil_freed=True)
    prompts = [[first, 2, 3, 4, 5, 6] for first in (10, 20, 30)]
    for prompt in prompts[:2]:
        ended(memory, prompt)
    assert partial(memory, [*prompts[0], 7]) == 2
    ended(memory, prompts[2])
    assert [partial(memory, [*prompt, 7]) for prompt in prompts] == [2, 0, 2]
    assert len(memory.tails) == 2


def test_behind_each_block_the_newest_is_kept(layout: LayoutClass) -> None:
    memory = memory_of(layout)
    ended(memory, TURN)
    ended(memory, [*TURN[:4], 9])
    assert [partial(memory, [*tokens, 30]) for tokens in (TURN, [*TURN[:4], 9])] == [0, 1]


def test_a_worker_may_keep_none(layout: LayoutClass) -> None:
    memory = KVMemory(layout(SHAPE, slots=2, context=CONTEXT, blocks=8, block_size=BLOCK), KVLimits(tails=0))
    ended(memory, TURN)
    assert partial(memory, [*TURN, 8]) == 0


def test_it_goes_with_what_it_follows(layout: LayoutClass) -> None:
    memory = memory_of(layout)
    ended(memory, TURN)
    memory.release("acme", "", array("I", TURN), PUBLIC)
    assert partial(memory, [*TURN, 8]) == 0
