"""Sequences whose blocks are on their way from host or disk: they hold nobody up, and may end before."""

from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import msgspec
import pytest

from cacheplane.wire import Tier
from tests.worker.kv.layouts import LayoutClass
from tests.worker.kv.tiered import PATIENCE_S, quiet
from tests.worker.rig import BLOCK, GLOBEX, Rig, ask, greedy
from worker.kv import KVLimits
from worker.kv.folder import BlockFolder
from worker.kv.loading import Here
from worker.model import Model
from worker.tokenizer import Vocabulary
from worker.wire import Cached, End

LONG = [70] * 40
ROOM = 32  # blocks


@pytest.fixture(params=[Tier.HOST, Tier.DISK])
def tier(request: pytest.FixtureRequest) -> Tier:
    found: Tier = request.param
    return found


@pytest.fixture
def loading(
    tiny_model: Model,
    tiny_vocabulary: Vocabulary,
    layout: LayoutClass,
    tier: Tier,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[tuple[Rig, Event]]:
    """LONG was computed, and others that needed all room drove it from the device to host or disk, which are slow: it
    comes back when the event is set."""
    gate = Event()
    _hold_up(monkeypatch, gate, Here, "result")
    _hold_up(monkeypatch, gate, BlockFolder, "read")
    limits = KVLimits(1 << 20, gate=0) if tier == Tier.HOST else KVLimits(0, 1 << 20, tmp_path, "tiny", gate=0)
    rig = Rig(tiny_model, tiny_vocabulary, blocks=ROOM, limits=limits, layout=layout)
    rig.complete(ask(LONG, sampling=greedy(1)))
    for token in (5, 6):
        rig.complete(ask([token] * (ROOM * BLOCK - 1), sampling=greedy(1)))
    quiet(rig.memory)
    rig.memory.reuse.prefill_tps = 0.0  # loading pays
    rig.memory.reuse._loader._patience = PATIENCE_S
    yield rig, gate
    gate.set()
    rig.memory.shut()


def _hold_up(monkeypatch: pytest.MonkeyPatch, gate: Event, owner: type, name: str) -> None:
    """A method waits for the gate before it does what it does."""
    method = getattr(owner, name)

    def held(*arguments: Any) -> Any:
        assert gate.wait(60)
        return method(*arguments)

    monkeypatch.setattr(owner, name, held)


def test_a_sequence_waits_for_its_blocks_and_holds_nobody_up(loading: tuple[Rig, Event], tier: Tier) -> None:
    rig, gate = loading
    waiting = rig.submit(ask(LONG, tag="acme"))
    other = rig.submit(ask([*range(10, 34)], tag="globex"))
    while not other.frames or not isinstance(other.frames[-1], End):
        rig.engine.step()
    assert waiting.frames == []
    assert rig.scheduler.loading
    assert not rig.engine.step()
    gate.set()
    rig.run()
    waiting.check()
    assert waiting.start.cached == Cached(**{tier.name.lower(): len(LONG) - BLOCK})
    assert waiting.tokens() == rig.complete(ask(LONG, namespace=GLOBEX)).tokens()
    rig.check_idle()


def test_a_request_may_end_while_its_blocks_are_on_their_way(loading: tuple[Rig, Event]) -> None:
    rig, gate = loading
    request = ask(LONG)
    reply = rig.submit(request)
    rig.engine.step()
    assert rig.engine.abort(request.request_id)
    reply.check()
    assert reply.start.cached == Cached()
    gate.set()
    while rig.memory.slots.free < rig.memory.slots.total:
        assert not rig.engine.step()
    rig.check_idle()


@pytest.mark.parametrize("tier", [Tier.DISK], indirect=True)
def test_a_disk_that_hangs_keeps_nobodys_slot(loading: tuple[Rig, Event]) -> None:
    """Who waits for it computes what does not come, and who was aborted meanwhile is out of the way."""
    rig, _ = loading
    rig.memory.reuse._loader._patience = 0.05
    left, waiting = ask(LONG), rig.submit(ask(LONG))
    rig.submit(left)
    rig.engine.step()
    assert rig.engine.abort(left.request_id)
    rig.run()
    waiting.check()
    assert waiting.start.cached == Cached()
    assert rig.memory.slots.free == rig.memory.slots.total
    assert waiting.tokens() == rig.complete(ask(LONG, namespace=GLOBEX)).tokens()
    rig.check_idle()


def test_a_sequence_is_not_preempted_while_its_blocks_are_on_their_way(loading: tuple[Rig, Event]) -> None:
    rig, gate = loading
    rig.submit(ask(LONG, tag="acme", request_id="loading", priority=0))
    for number in range(3):
        rig.submit(ask([200 + number] * 9, tag="acme", request_id=f"r{number}", sampling=greedy(30)))
    rig.engine.step()
    rig.submit(ask([9], tag="globex", request_id="quiet"))
    rig.engine.step()
    assert {sequence.job.id for sequence in rig.scheduler.running} == {"loading", "r0", "r1", "quiet"}
    gate.set()
    rig.run()
    rig.check_idle()


@pytest.mark.parametrize("end", ["preempted", "aborted"])
def test_a_sequence_may_lose_its_slot_when_its_blocks_have_come_and_it_has_not_begun(
    loading: tuple[Rig, Event], end: str
) -> None:
    rig, gate = loading
    request = ask(LONG)
    reply = rig.submit(request)
    rig.engine.step()
    [sequence] = rig.scheduler.running
    gate.set()
    while sequence.is_loading:
        rig.memory.poll()
    if end == "aborted":
        assert rig.engine.abort(request.request_id)
    else:
        rig.scheduler.preempt(sequence)
    rig.run()
    reply.check()
    if end == "preempted":
        assert sum(msgspec.structs.astuple(reply.start.cached)) == len(LONG) - BLOCK
        assert reply.tokens() == rig.complete(ask(LONG, namespace=GLOBEX)).tokens()
    rig.check_idle()
