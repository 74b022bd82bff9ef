"""The disk tier over real files, opened and closed for a test."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.worker.kv.blocks import BLOCK, SHAPE, chain, kv
from worker.kv.blockfile import BlockFile
from worker.kv.disk import DiskTier
from worker.kv.record import DiskRecord
from worker.kv.shape import Block, KVShape

MODEL = "f" * 32
FILE_BYTES = BlockFile(SHAPE, BLOCK, MODEL).size
ROOT, CHILD, GRANDCHILD, *_ = CHAIN = chain(6)


@contextmanager
def opened(
    folder: Path, files: int = 100, *, shape: KVShape = SHAPE, model: str = MODEL, staged: int = 100
) -> Iterator[tuple[DiskTier, list[DiskRecord]]]:
    """A tier over a folder and what its scan found; its books balance in the end."""
    size = BlockFile(shape, BLOCK, model).size
    tier = DiskTier(folder, shape, BLOCK, files * size, model, staging_bytes=staged * size)
    try:
        yield tier, tier.scan()
    finally:
        tier.close()
    tier.check()
    assert tier._staging.lent == 0
    assert tier.bytes_used <= files * size


def store(tier: DiskTier, record: DiskRecord, seed: int = 0) -> bool:
    return tier.store(record, kv(seed)).result()


def load(tier: DiskTier, record: DiskRecord) -> Block | None:
    return tier.load(record).result()


def on_disk(tier: DiskTier, record: DiskRecord) -> bool:
    """Not yet, while it is being written."""
    return tier.priority(record.digest) is not None


def path_of(folder: Path, record: DiskRecord) -> Path:
    return folder / f"{record.digest.hex()}.kv"


@contextmanager
def held_up(tier: DiskTier) -> Iterator[None]:
    """The writing thread waits inside the block."""
    gate = threading.Event()
    tier._writer.submit(gate.wait)
    try:
        yield
    finally:
        gate.set()
