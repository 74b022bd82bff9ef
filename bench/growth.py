"""What a block costs beside its KV, and how long finding and storing take, as the tree grows to a million blocks."""

import time
from array import array
from collections.abc import Sequence
from multiprocessing import get_context
from statistics import median
from typing import TypedDict

import psutil
import torch

from cacheplane.identity import Namespace, Span
from worker.kv import KVLimits, KVMemory, KVShape, SlotLayout
from worker.wire import Retention, RetentionRange

BLOCK = 16
SIZES = (50_000, 200_000, 900_000)
_SHAPE = KVShape(layers=1, kv_heads=1, head_dim=1, dtype=torch.float32)
_KV_BYTES = _SHAPE.bytes_per_token * BLOCK
_SPANS = [Span(0, Namespace(b"n" * 32))]
_PATH = 2048  # blocks of one prompt: 32,768 tokens
_WEEK_MS = 7 * 24 * 3600 * 1000


class Row(TypedDict):
    """bytes_per_block   resident memory of a block beyond its KV
    match_ms             finding a prompt of 32,768 tokens that is wholly known; median
    store_us             computing the books of a new block, without its KV's computation; CPU time
    """

    blocks: int
    bytes_per_block: int
    match_ms: float
    store_us: float


def growth(sizes: Sequence[int] = SIZES, *, path: int = _PATH, leased: bool = False) -> list[Row]:
    """A row for each size, in ascending order; every prompt has `path` blocks, under a lease of its own if leased."""
    memory = _memory(max(sizes) + 2 * path, path)
    _store(memory, _prompt(0, path), "first" if leased else None)  # what is only allocated once
    process = psutil.Process()
    before, first, stored, rows = process.memory_info().rss, _held(memory), 0, []
    for size in sizes:
        began, added = time.thread_time(), 0
        while stored < size:
            stored += path
            added += path
            _store(memory, _prompt(stored, path), str(stored) if leased else None)
        spent = time.thread_time() - began
        each = bytes_each(before, process.memory_info().rss, _held(memory) - first, _KV_BYTES)
        store_us = round(spent / added * 1e6, 2)
        rows.append(Row(blocks=size, bytes_per_block=each, match_ms=match_ms(memory, path), store_us=store_us))
    return rows


def grown_apart(most: int, *, leased: bool) -> list[Row]:
    """`growth` up to a size, in a process where nothing else comes and goes."""
    sizes = [size for size in SIZES if size <= most] or [most]
    with get_context("spawn").Pool(1) as pool:
        return pool.apply(growth, (sizes,), {"leased": leased})


def bytes_each(before: int, after: int, blocks: int, kv_bytes: int) -> int:
    """Bytes of resident memory for each of the blocks that came between two measurements, less its KV."""
    return round((after - before) / blocks) - kv_bytes


def match_ms(memory: KVMemory, path: int) -> float:
    """Milliseconds to find the first prompt, all of whose blocks are known; median of 30."""
    tokens, times = _prompt(0, path), []
    for _ in range(30):
        began = time.perf_counter()
        known = memory.known(tokens, _SPANS)
        times.append((time.perf_counter() - began) * 1000)
        assert known == path
    return round(median(times), 3)


def _prompt(first: int, path: int) -> "array[int]":
    return array("I", range(first * BLOCK, (first + path) * BLOCK))


def _held(memory: KVMemory) -> int:
    return memory.pool.total - memory.pool.free


def _memory(blocks: int, path: int) -> KVMemory:
    layout = SlotLayout(_SHAPE, slots=1, context=(path + 1) * BLOCK, blocks=blocks, block_size=BLOCK)
    return KVMemory(layout, KVLimits(lease_blocks=blocks))


def _store(memory: KVMemory, tokens: "array[int]", session: str | None) -> None:
    """One sequence that computes all of its tokens."""
    holding = memory.open(tokens, _SPANS)
    assert holding is not None
    memory.extend(holding, tokens, len(tokens))
    retention = None if session is None else Retention([RetentionRange(80, _WEEK_MS)], session)
    memory.close(holding, "tag", retention)
    memory.poll()
    memory.take_events()
