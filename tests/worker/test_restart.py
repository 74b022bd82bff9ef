"""A worker that stops and starts over one folder, as its gateway meets it: yesterday's prefixes, or honest misses."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from cacheplane.identity import BlockChain
from tests.worker.client import PROMPT, Client
from tests.worker.kv.tiered import damage
from tests.worker.live import LiveWorker
from tests.worker.rig import ACME, GLOBEX, Reply
from worker.wire import Cached

BLOCK = 8
KEPT = len(PROMPT) // BLOCK * BLOCK  # tokens of whole blocks; the prompt goes on behind them


@asynccontextmanager
async def day(model: Path, folder: Path, *flags: str) -> AsyncIterator[Client]:
    """From the worker's start to its stop."""
    disk = ("--disk-folder", str(folder / "kv"), "--disk-mib", "16", "--host-mib", "0", "--block-size", str(BLOCK))
    with LiveWorker(model, folder, *disk, *flags) as live:
        live.process._service.engine.memory.reuse.prefill_tps = 1.0  # of a model so small nothing is worth loading
        async with Client(live.url) as client:
            yield client


def same(one: Reply, other: Reply) -> bool:
    return (one.tokens(), one.text()) == (other.tokens(), other.text())


@pytest.mark.parametrize("kind", ["auto", "float32", "int8"])
async def test_a_prefix_comes_from_disk_for_its_owner_alone(tiny_path: Path, tmp_path: Path, kind: str) -> None:
    async with day(tiny_path, tmp_path, "--kv-dtype", kind) as client:
        before = await client.generate()
    async with day(tiny_path, tmp_path, "--kv-dtype", kind) as client:
        stranger = await client.generate(spans=[{"start": 0, "namespace": GLOBEX.hex}])
        owner = await client.generate()
    assert stranger.start.cached == Cached()
    assert owner.start.cached == Cached(disk=KEPT)
    assert same(owner, before)
    assert same(stranger, before)


async def test_a_damaged_file_is_a_miss_from_its_block_on_and_is_counted(tiny_path: Path, tmp_path: Path) -> None:
    async with day(tiny_path, tmp_path) as client:
        before = await client.generate()
    damage(tmp_path / "kv" / f"{BlockChain.of(PROMPT, ACME, BLOCK).hashes[2].hex()}.kv")
    async with day(tiny_path, tmp_path) as client:
        after = await client.generate()
        assert after.start.cached == Cached(disk=2 * BLOCK)
        assert same(after, before)
        assert await client.metric("saltway_worker_disk_faults") == 1


async def test_another_kind_of_kv_is_a_miss(tiny_path: Path, tmp_path: Path) -> None:
    async with day(tiny_path, tmp_path, "--kv-dtype", "float32") as client:
        await client.generate()
    assert list((tmp_path / "kv").iterdir())
    async with day(tiny_path, tmp_path, "--kv-dtype", "fp8") as client:
        assert not list((tmp_path / "kv").iterdir())
        assert (await client.generate()).start.cached == Cached()


async def test_what_is_not_to_be_stored_is_in_no_file(tiny_path: Path, tmp_path: Path) -> None:
    async with day(tiny_path, tmp_path) as client:
        await client.generate(store=False)
    assert not list((tmp_path / "kv").iterdir())
    async with day(tiny_path, tmp_path) as client:
        assert (await client.generate()).start.cached == Cached()
