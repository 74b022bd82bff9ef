"""What a sequence begins with beyond whole blocks: part of a block that it shares, or all of one that runs."""

from array import array
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cacheplane.identity import Namespace, Span
from tests.worker.kv.layouts import LayoutClass
from tests.worker.kv.sequences import BLOCK, PUBLIC, check_slot, compute, live, memory_of
from tests.worker.kv.tiered import live as tiered_live
from tests.worker.kv.tiered import tiered
from tests.worker.rig import GLOBEX
from worker.kv import Holding, KVMemory, PagedLayout
from worker.wire import Cached

STORED = [*range(8), 10, 11, 12, 13]


def opened(memory: KVMemory, tokens: Sequence[int], spans: Sequence[Span] = PUBLIC, *, store: bool = True) -> Holding:
    holding = memory.open(array("I", tokens), spans, store=store)
    assert holding is not None
    check_slot(memory, holding, tokens, holding.reused)
    return holding


@pytest.mark.parametrize(
    ("tail", "partial"),
    [
        ([10, 11, 99, 99, 99], 2),  # diverges inside the block
        ([10, 11, 12, 99], 3),  # and has a token less to compute
        ([10, 11, 12, 13], 3),  # is known in whole, but for the logits of its last token
        ([10, 11], 1),  # ends inside the block
        ([10], 0),
        ([99, 11, 12, 13, 14], 0),
        ([11, 12, 13, 14, 15], 0),
    ],
)
def test_what_a_block_begins_with_is_copied_when_the_rest_differs(
    layout: LayoutClass, tail: list[int], partial: int
) -> None:
    memory = memory_of(layout)
    live(memory, STORED)
    holding = opened(memory, [*range(8), *tail])
    assert (holding.cached, holding.reused) == (Cached(device=8, partial=partial), 8 + partial)
    memory.close(holding)
    memory.check()


def test_a_copied_part_is_the_sequences_own(layout: LayoutClass) -> None:
    memory = memory_of(layout, blocks=12)
    live(memory, STORED)
    tokens = [*range(8), 10, 11, 50, 51, 52]
    holding = opened(memory, tokens)
    compute(memory, holding, tokens, holding.reused, len(tokens))
    memory.extend(holding, array("I", tokens), len(tokens))
    memory.close(holding)
    assert opened(memory, [*STORED, 1]).reused == 12
    assert opened(memory, [*tokens, 1]).cached == Cached(device=12, partial=0)
    memory.check()


def test_of_many_blocks_the_one_that_shares_most_is_copied(layout: LayoutClass) -> None:
    memory = memory_of(layout, blocks=12)
    for tail in ([1, 2, 8, 8], [1, 2, 3, 8], [1, 8, 8, 8]):
        live(memory, [*range(4), *tail])
    assert opened(memory, [*range(4), 1, 2, 3, 4, 5]).cached == Cached(device=4, partial=3)


def test_the_first_block_can_be_a_part_too(layout: LayoutClass) -> None:
    memory = memory_of(layout)
    live(memory, [1, 2, 3, 4])
    assert opened(memory, [1, 2, 3, 9]).cached == Cached(partial=3)


def test_no_part_is_shared_between_namespaces_and_each_finds_its_own(layout: LayoutClass) -> None:
    memory = memory_of(layout, blocks=12)
    tokens = [1, 2, 3, 9]
    live(memory, [1, 2, 3, 4])
    assert opened(memory, tokens, [Span(0, GLOBEX)]).reused == 0
    live(memory, [1, 2, 3, 4], [Span(0, GLOBEX)])
    assert opened(memory, tokens, [Span(0, GLOBEX)]).cached == Cached(partial=3)


def test_behind_a_barrier_only_the_same_namespace_shares_a_part(layout: LayoutClass) -> None:
    memory = memory_of(layout, slots=4, blocks=16)
    first, barrier, other = Span(0, GLOBEX), Span(4, Namespace(b"x" * 32)), Span(4, Namespace(b"x" * 31 + b"y"))
    live(memory, [0, 0, 0, 0, 1, 2, 3, 4], [first, barrier])
    tokens = [0, 0, 0, 0, 1, 2, 3, 9]
    assert opened(memory, tokens, [first]).cached == Cached(device=4)
    assert opened(memory, tokens, [first, other]).cached == Cached(device=4)
    assert opened(memory, tokens, [first, barrier]).cached == Cached(device=4, partial=3)


def test_tokens_that_spell_a_namespace_share_nothing_with_it(layout: LayoutClass) -> None:
    """A guess at another tenant's key, put into a prompt, must not be confirmed by what is reused."""
    memory = memory_of(layout, slots=4, blocks=16)
    key = Namespace(b"x" * 32)
    live(memory, [0, 0, 0, 0, 1, 2, 3, 4], [Span(0, GLOBEX), Span(4, key)])
    guess = np.frombuffer(key.key, np.uint32).tolist()[:3]
    assert opened(memory, [0, 0, 0, 0, *guess, 9], [Span(0, GLOBEX)]).cached == Cached(device=4)


def test_a_block_is_not_evicted_for_its_own_copy() -> None:
    memory = memory_of(PagedLayout, blocks=1)
    live(memory, [1, 2, 3, 4])
    assert memory.pool.total == 2
    holding = opened(memory, [1, 2, 3, 9])
    assert (holding.cached.partial, memory.pool.free) == (3, 0)
    memory.close(holding)
    memory.check()


def test_what_makes_room_for_a_load_does_not_drive_out_what_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a disk that is full, and as quick as it can be."""
    memory = tiered(tmp_path, layout=PagedLayout, blocks=3, host=0, disk=4)
    store = memory.tiers.disk.store

    def at_once(*block: Any) -> Future[bool]:
        stored = store(*block)
        assert stored.result()
        return stored

    monkeypatch.setattr(memory.tiers.disk, "store", at_once)
    for prompt in ([1] * 9, [2] * 9, [3] * 13):
        tiered_live(memory, prompt)
    assert tiered_live(memory, [1] * 9) == (0, 0, 8)
    memory.shut()


# Forks


@pytest.mark.parametrize("store", [True, False])
@pytest.mark.parametrize("count", [0, 3, 4, 7, 10])
def test_forked_is_separate(layout: LayoutClass, count: int, store: bool) -> None:
    memory = memory_of(layout, blocks=12)
    tokens = list(range(10))
    source = opened(memory, tokens, store=store)
    compute(memory, source, tokens, 0, 10)
    memory.extend(source, array("I", tokens), 10)
    fork = memory.fork(source, count)
    assert fork is not None
    assert (fork.reused, fork.stored) == (count, count // BLOCK if store else 0)
    mine, theirs = [*tokens[:count], *[70] * 7], [*tokens, 80, 81, 82]
    for holding, own in ((fork, mine), (source, theirs)):
        start = count if holding is fork else 10
        compute(memory, holding, own, start, len(own))
        memory.extend(holding, array("I", own), len(own))
    check_slot(memory, fork, mine, len(mine))
    check_slot(memory, source, theirs, len(theirs))
    memory.check()
    memory.close(source)
    check_slot(memory, fork, mine, len(mine))
    memory.close(fork)
    whole = {tuple(own[:end]) for own in (mine, theirs) for end in range(BLOCK, len(own) + 1, BLOCK)}
    assert len(memory.tree) == (len(whole) if store else 0)
    memory.check()


def test_over_pages_a_fork_shares_every_block_and_copies_only_the_unfinished_one() -> None:
    memory = memory_of(PagedLayout, blocks=12)
    tokens = list(range(10))
    source = opened(memory, tokens, store=False)
    compute(memory, source, tokens, 0, 10)
    free = memory.pool.free
    assert memory.fork(source, 10)
    assert memory.fork(source, 8)
    assert memory.pool.free == free - 2
    assert sorted(memory.layout.held().values()) == [1, 1, 1, 3, 3]


def test_without_room_nothing_is_forked(layout: LayoutClass) -> None:
    memory = memory_of(layout, slots=1)
    source = opened(memory, [1, 2, 3])
    assert memory.fork(source, 2) is None
    memory = memory_of(PagedLayout, blocks=1)
    source = opened(memory, list(range(7)))
    assert memory.fork(source, 2) is None
    memory.close(source)
    memory.check()
