"""Dynamo's radix tree behind its Python bindings, if the package `ai-dynamo-runtime` is installed."""

import importlib
import json
import os
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from bench.index.fleet import Session
from cacheplane.wire import BlockRemoved, BlockStored

PACKAGE = "ai-dynamo-runtime"


class DynamoTree:
    """One tier, 64-bit hashes, JSON events; a block is known by the hash of its tokens and by its own.

    API and event form: dynamo.llm.RadixTree, `dynamo/_core.pyi` of the package.
    """

    def __init__(self) -> None:
        os.environ.setdefault("DYN_LOG", "error")
        module: Any = importlib.import_module("dynamo.llm")
        self.version = version(PACKAGE)
        self._tree = module.RadixTree()
        self._hash = module.compute_block_hash_for_seq
        self._events = 0

    def payload(self, event: BlockStored | BlockRemoved) -> bytes:
        """The event as bytes, made outside of what is timed."""
        self._events += 1
        match event:
            case BlockStored():
                blocks = [{"block_hash": _own(name), "tokens_hash": _local(name)} for name in event.hashes]
                parent = None if event.parent is None else _own(event.parent)
                data: dict[str, Any] = {"stored": {"parent_hash": parent, "blocks": blocks}}
            case BlockRemoved():
                data = {"removed": {"block_hashes": [_own(name) for name in event.hashes]}}
        return json.dumps({"event_id": self._events, "data": data}).encode()

    def apply(self, worker: int, payload: bytes) -> None:
        self._tree.apply_event(worker, payload)

    def forget(self, worker: int) -> None:
        self._tree.remove_worker(worker)

    def find(self, sequence: list[int]) -> dict[Any, int]:
        scores: dict[Any, int] = self._tree.find_matches(sequence).scores
        return scores

    def hash(self, tokens: list[int]) -> Any:
        return self._hash(tokens, 16)


def dynamo() -> DynamoTree | None:
    """None when the package is not installed."""
    try:
        return DynamoTree()
    except (ImportError, PackageNotFoundError):
        return None


def sequence(session: Session, blocks: int) -> list[int]:
    return [_local(name) for name in session.hashes[:blocks]]


def _own(name: bytes) -> int:
    return int.from_bytes(name[:8], "little") >> 1  # its JSON takes 63 bits on every platform


def _local(name: bytes) -> int:
    return int.from_bytes(name[8:], "little") >> 1
