"""The laws of the engine: whatever happens around a request, its reply is the one that it gets alone.

Speculation, failover and the deterministic mode have their own (test_speculation.py, test_failover.py,
test_deterministic.py); constrained and sampled replies are preempted in test_preemption.py.
"""

from array import array
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cacheplane.identity import BlockChain, Span
from cacheplane.wire import Tier
from tests.worker.kv.layouts import LAYOUTS, LayoutClass
from tests.worker.kv.ledger import listed, replayed
from tests.worker.kv.tiered import quiet
from tests.worker.rig import ACME, BLOCK, GLOBEX, Rig, ask, greedy
from tests.worker.schedules import LONGEST, STEMS, Cold, Plan, apart, below, plans, play
from worker.kv import PagedLayout
from worker.model import Model
from worker.tokenizer import Vocabulary


@settings(max_examples=30)
@given(
    schedule=st.lists(plans, min_size=1, max_size=10),
    between=st.sampled_from([0, 8]),
    slots=st.integers(1, 4),
    layout=st.sampled_from(LAYOUTS),
    blocks=st.sampled_from([3, 6, 40]),
    host=st.sampled_from([0, 4, 20]),
    disk=st.sampled_from([0, 6, 40]),
    budget=st.integers(8, 40),
    stalls=st.sets(st.integers(1, 40), max_size=8),
)
def test_hit_is_miss_chunked_is_whole_batched_is_alone_preempted_is_undisturbed_offloaded_is_resident(
    tiny_model: Model,
    tiny_vocabulary: Vocabulary,
    cold: Cold,
    schedule: list[Plan],
    between: int,
    slots: int,
    layout: LayoutClass,
    blocks: int,
    host: int,
    disk: int,
    budget: int,
    stalls: set[int],
) -> None:
    schedule = apart(schedule, between)
    if layout is PagedLayout:
        blocks = max(blocks, LONGEST // BLOCK + 1)
    with TemporaryDirectory() as folder:
        limits = below(layout, tiny_model, Path(folder), host=host, disk=disk)
        rig = Rig(tiny_model, tiny_vocabulary, slots=slots, blocks=blocks, budget=budget, limits=limits, layout=layout)
        for plan, reply in zip(schedule, play(rig, schedule, stalls), strict=True):
            reply.check(plan.n)
            for index in range(plan.n):
                count, reason = len(reply.tokens(index)), reply.finish(index).reason
                assert reason == "length" or (reason == "abort" and plan.aborted is not None)
                assert count == plan.max_tokens or reason == "abort"
                cold.expect(plan.prompt, reply, index)
        quiet(rig.memory)
        rig.check_idle()
        rig.events += rig.memory.take_events()
        assert replayed(rig.events) == listed(rig.memory.snapshot())
        rig.memory.shut()


@pytest.mark.parametrize("tier", [Tier.HOST, Tier.DISK])
def test_offloaded_is_resident_for_whom_it_belongs_to_and_nothing_for_another(
    tiny_model: Model, tiny_vocabulary: Vocabulary, cold: Cold, layout: LayoutClass, tier: Tier, tmp_path: Path
) -> None:
    """A prompt that others drove from the device: its owner finds it below, and a stranger with the same tokens does
    not; both get the same reply."""
    limits = below(layout, tiny_model, tmp_path, host=64 if tier == Tier.HOST else 0, disk=64)
    rig = Rig(tiny_model, tiny_vocabulary, blocks=12, limits=limits, layout=layout)
    prompt = [*STEMS[2], 50]
    rig.complete(ask(prompt))
    for token in (5, 6):
        rig.complete(ask([token] * (12 * BLOCK - 1), sampling=greedy(1)))
    quiet(rig.memory)
    rig.memory.reuse.prefill_tps = 0.0  # loading pays
    stranger = rig.complete(ask(prompt, namespace=GLOBEX, sampling=greedy(6), store=False))
    assert (stranger.start.cached.device, stranger.start.cached.host, stranger.start.cached.disk) == (0, 0, 0)
    rig.memory.reuse.prefill_tps = 0.0
    owner = rig.complete(ask(prompt, sampling=greedy(6)))
    assert getattr(owner.start.cached, tier.name.lower()) == len(STEMS[2])
    for reply in (stranger, owner):
        cold.expect(prompt, reply)
    rig.check_idle()
    rig.memory.shut()


def test_what_is_not_to_be_stored_leaves_nothing_in_any_tier(
    tiny_model: Model, tiny_vocabulary: Vocabulary, layout: LayoutClass, tmp_path: Path
) -> None:
    """Neither while it runs, nor when others need its room, nor when the worker stops; a stored one leaves files."""
    prompt = [*STEMS[2], 50]
    files = {f"{digest.hex()}.kv" for digest in BlockChain.of(prompt, ACME, BLOCK).hashes}
    for store in (False, True):
        limits = below(layout, tiny_model, tmp_path, host=4, disk=64)
        rig = Rig(tiny_model, tiny_vocabulary, blocks=12, limits=limits, layout=layout)
        rig.complete(ask(prompt, store=store))
        for token in (5, 6):
            rig.complete(ask([token] * (12 * BLOCK - 1), sampling=greedy(1)))
        quiet(rig.memory)
        assert bool(rig.memory.known(array("I", prompt), [Span(0, ACME)])) == store
        rig.memory.shut()
        assert bool(files & {path.name for path in tmp_path.iterdir()}) == store
