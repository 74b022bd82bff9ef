"""KV memory over three small tiers, and sequences that live on it from start to end."""

import os
import time
from array import array
from collections.abc import Sequence
from pathlib import Path

from cacheplane.identity import Span
from tests.worker.kv.layouts import LayoutClass
from tests.worker.kv.sequences import BLOCK, CONTEXT, PUBLIC, SHAPE, check_slot, compute
from worker.kv import Holding, KVLimits, KVMemory, PagedLayout, SlotLayout
from worker.kv.blockfile import BlockFile
from worker.kv.copying import Copier
from worker.wire import Retention

PATIENCE_S = 60.0  # for what must come, however slow the machine


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def tiered(
    folder: Path,
    *,
    layout: LayoutClass = SlotLayout,
    slots: int = 3,
    blocks: int = 3,
    host: int = 3,
    disk: int = 4,
    clock: Clock | None = None,
    copier: Copier | None = None,
) -> KVMemory:
    """Room for so many stored blocks, and over pages for the unfinished block of one sequence beside them."""
    total = blocks + (issubclass(layout, PagedLayout))
    tensors = layout(SHAPE, slots=slots, context=CONTEXT, blocks=total, block_size=BLOCK)
    limits = KVLimits(
        host * tensors.shape.bytes_per_token * BLOCK,
        disk * BlockFile(tensors.shape, BLOCK, "tiny").size,
        folder,
        "tiny",
        gate=20,
        lease_blocks=8,
        lease_host_blocks=2,
        lease_disk_blocks=1,
    )
    return KVMemory(tensors, limits, clock=clock or Clock(), copier=copier, spoil_freed=True)


def loaded(memory: KVMemory, holding: Holding) -> Holding:
    """Waits for the blocks that are on their way."""
    deadline = time.monotonic() + PATIENCE_S
    while holding.loading:
        assert time.monotonic() < deadline
        memory.poll()
        time.sleep(0.0005)
    return holding


def idle(memory: KVMemory) -> None:
    """Waits until nothing is loaded any more, also for sequences that have ended."""
    deadline = time.monotonic() + PATIENCE_S
    while memory.loading:
        assert time.monotonic() < deadline
        memory.poll()
        time.sleep(0.0005)


def quiet(memory: KVMemory) -> None:
    """Waits until the disk has done what it was asked."""
    deadline = time.monotonic() + PATIENCE_S
    memory.poll()
    while memory.tiers.writing:
        assert time.monotonic() < deadline
        time.sleep(0.0005)
        memory.poll()
    memory.tiers.disk._writer.submit(lambda: None).result()  # files that nobody wants any more


def live(
    memory: KVMemory, tokens: Sequence[int], spans: Sequence[Span] = PUBLIC, retention: Retention | None = None
) -> tuple[int, int, int]:
    """One sequence from start to end; reused tokens by tier: (device, host, disk)."""
    raw = array("I", tokens)
    holding = memory.open(raw, spans)
    assert holding is not None
    loaded(memory, holding)
    check_slot(memory, holding, tokens, holding.reused)
    compute(memory, holding, tokens, holding.reused, len(tokens))
    memory.extend(holding, raw, len(tokens))
    memory.close(holding, "acme", retention)
    quiet(memory)
    memory.check()
    return holding.cached.device, holding.cached.host, holding.cached.disk


def damage(path: Path) -> None:
    """Changes a byte of the payload, which a scan doesn't look at."""
    with path.open("r+b") as file:
        file.seek(-20, os.SEEK_END)
        byte = file.read(1)
        file.seek(-20, os.SEEK_END)
        file.write(bytes([byte[0] ^ 1]))
