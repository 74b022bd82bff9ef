"""Traces as requests with block chains, from the formats that are published."""

import gzip
import io
import json
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cacheplane.identity import BlockChain, Namespace, block_hash

MOONCAKE_BLOCK: Final = 512  # tokens
# Recorded sessions know their own time only; they are started one after another, so that they overlap.
STAGGER_SECONDS: Final = 20.0
_MAX_BYTES: Final = 1 << 30
_NAMESPACE: Final = Namespace(b"trace replay".ljust(32, b"\0"))


@dataclass(frozen=True, slots=True)
class Request:
    """One recorded request.

    at              seconds from the start of the trace
    chain           its blocks; a last block that the trace names though it is not full counts as full
    prompt_tokens   at least one more than its blocks: an engine always computes a token
    output_tokens   at least 1
    """

    at: float
    chain: BlockChain
    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Trace:
    """Requests in order of time."""

    name: str
    requests: list[Request]

    @property
    def blocks(self) -> int:
        """Blocks of all prompts together."""
        return sum(len(request.chain) for request in self.requests)

    @property
    def bound(self) -> float:
        """The share of all blocks that one cache without limits, and without delay, would have had."""
        seen: set[bytes] = set()
        hits = 0
        for request in self.requests:
            # A hash commits to all before it: the blocks that were seen are the first ones.
            hits += sum(key in seen for key in request.chain.hashes)
            seen.update(request.chain.hashes)
        return hits / max(1, self.blocks)


def load(path: Path) -> Trace:
    """A trace by its suffix: .tar.gz of coding sessions, else JSON lines of the Mooncake kind, gzip or not.

    errors   ValueError for a file that is neither, naming the line
    """
    name = path.name.split(".")[0]
    requests = _sessions(path) if path.name.endswith((".tar.gz", ".tgz")) else _mooncake(path)
    return Trace(name, sorted(requests, key=lambda request: request.at))


def _mooncake(path: Path) -> Iterator[Request]:
    """`timestamp` (ms), `input_length`, `output_length`, `hash_ids` (512-token blocks, ids global)."""
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                row = json.loads(line)
                yield _request(
                    row["timestamp"] / 1000,
                    _chain(row["hash_ids"], MOONCAKE_BLOCK),
                    row["input_length"],
                    row["output_length"],
                )
            except (ValueError, KeyError, TypeError, OverflowError) as error:
                raise ValueError(f"{path.name} line {number} is no request of a Mooncake trace: {error!r}") from error


def _sessions(path: Path) -> Iterator[Request]:
    """Coding-agent sessions (kv-cache-tester): one JSON file each, ids local to it, sub-agents nested."""
    with gzip.open(path) as raw, tarfile.open(fileobj=io.BytesIO(raw.read(_MAX_BYTES))) as archive:
        members = sorted((item for item in archive.getmembers() if item.name.endswith(".json")), key=lambda i: i.name)
        for number, member in enumerate(members):
            file = archive.extractfile(member)
            if file is not None:
                yield from _session(json.load(file), number)


def _session(session: dict[str, Any], number: int) -> Iterator[Request]:
    for at, turn in _turns(session["requests"], number * STAGGER_SECONDS):
        chain = _chain(turn["hash_ids"], session["block_size"], first=number)
        yield _request(at, chain, turn["in"], turn["out"])


def _turns(requests: Iterable[dict[str, Any]], start: float) -> Iterator[tuple[float, dict[str, Any]]]:
    """(seconds, turn) of a session and of its sub-agents, whose times count from their own start."""
    for request in requests:
        if "requests" in request:
            yield from _turns(request["requests"], start + request["t"])
        elif request.get("hash_ids"):
            yield start + request["t"], request


def _request(at: float, chain: BlockChain, prompt_tokens: int, output_tokens: int) -> Request:
    return Request(at, chain, max(prompt_tokens, chain.tokens + 1), max(1, output_tokens))


def _chain(ids: list[int], block_size: int, first: int = 0) -> BlockChain:
    """Recorded block ids, linked as tokens would be; `first` divides sessions whose ids are their own."""
    hashes: list[bytes] = []
    for id_ in ids:
        data = first.to_bytes(4, "little") + id_.to_bytes(8, "little")
        hashes.append(block_hash(hashes[-1], None, data) if hashes else block_hash(None, _NAMESPACE, data))
    return BlockChain(tuple(hashes), block_size)
