"""The clock around the index, ours and the peer's in turns, so that a busy machine is busy for both."""

import gc
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median

import psutil

from bench.index.fleet import SyntheticFleet, Told, batch
from bench.index.peer import DynamoTree, sequence
from cacheplane.identity import BlockChain, Namespace, token_words
from cacheplane.index import PrefixIndex
from cacheplane.wire import Tier, decode_batch, encode_batch

Call = tuple[int, Callable[[], None]]  # with the blocks that it is about

LOOKUPS = 1_000
WINDOW = 200  # events of which one rate is taken
HASHED_TOKENS = 32_768


@dataclass(frozen=True, slots=True)
class Rate:
    """Blocks per second of CPU in the median window, the longest single event in milliseconds of CPU, memory.

    grown   bytes by which the process grew; what is applied was made before
    """

    per_second: float
    longest_ms: float
    grown: int


@dataclass(frozen=True, slots=True)
class Spread:
    """Microseconds of CPU."""

    p50: float
    p99: float


def told(
    index: PrefixIndex, fleet: SyntheticFleet, events: Sequence[Told], tree: DynamoTree | None = None
) -> tuple[Rate, Rate | None]:
    """Events into our index as the wire decodes them, and in turns with it into the peer's, as far as it has tiers.

    The peer's bytes are read within the time: it takes nothing else.
    """
    ours = [(len(event.hashes), _bound(index.apply, fleet.name(worker), batch(event))) for worker, event in events]
    if tree is None:
        return _rates(ours)[0], None
    theirs = [
        (len(event.hashes), _bound(tree.apply, worker, tree.payload(event)))
        for worker, event in events
        if event.tier is Tier.DEVICE
    ]
    first, second = _rates(ours, theirs)
    return first, second


def _bound(apply: Callable[..., None], *arguments: object) -> Callable[[], None]:
    return lambda: apply(*arguments)


def _rates(*programmes: Sequence[Call]) -> list[Rate]:
    """Of each programme of calls, a window of one after a window of the other."""
    runs = [_Run() for _ in programmes]
    gc.freeze()  # the calls themselves are many objects, and to go through them is no work of an index
    for first in range(0, max(map(len, programmes)), WINDOW):
        for run, calls in zip(runs, programmes, strict=True):
            if window := calls[first : first + WINDOW]:
                run.take(window)
    gc.unfreeze()
    return [Rate(median(run.rates), 1000 * run.longest, run.grown) for run in runs]


@dataclass(slots=True)
class _Run:
    """Windows of one programme: blocks per second, the longest call in seconds, bytes by which the process grew."""

    rates: list[float] = field(default_factory=list)
    longest: float = 0.0
    grown: int = 0

    def take(self, window: Sequence[Call]) -> None:
        resident, started = _resident(), time.process_time()
        for _, call in window:
            before = time.thread_time()
            call()
            self.longest = max(self.longest, time.thread_time() - before)
        self.rates.append(sum(blocks for blocks, _ in window) / (time.process_time() - started))
        self.grown += _resident() - resident


def wire_rate(fleet: SyntheticFleet, events: Sequence[Told]) -> float:
    """Blocks per second of CPU from the bytes of a message into an index of its own."""
    index = PrefixIndex()
    payloads = [(fleet.name(worker), len(event.hashes), encode_batch(batch(event))) for worker, event in events]

    def read(name: str, raw: bytes) -> None:
        index.apply(name, decode_batch(raw))

    return _rates([(blocks, _bound(read, name, raw)) for name, blocks, raw in payloads])[0].per_second


def _resident() -> int:
    return int(psutil.Process().memory_info().rss)


def finds(
    fleet: SyntheticFleet, index: PrefixIndex, tree: DynamoTree | None, blocks: int
) -> tuple[Spread, Spread | None]:
    """Look-ups of prompts in random order, each at another place in memory than the one before."""
    order = random.Random(2).choices(fleet.sessions, k=LOOKUPS)
    ours, theirs = [], []
    for session in order:
        keys = session.keys[:blocks]
        ours.append(_micros(lambda: index.match(keys)))  # noqa: B023  # called at once
        if tree is not None:
            wanted = sequence(session, blocks)
            theirs.append(_micros(lambda: tree.find(wanted)))  # noqa: B023
    return _spread(ours), _spread(theirs) if theirs else None


@dataclass(frozen=True, slots=True)
class Hashing:
    """Milliseconds for the block hashes of a 32k-token prompt, and their keys.

    words    of an array of 32-bit words, as the renderer keeps the ids of a prompt and as a request has them
    listed   of a list of Python's integers, as a tokenizer gives them and as the peer takes them, which takes no array
    """

    words: float
    listed: float
    theirs: float | None


def hashing(tree: DynamoTree | None) -> Hashing:
    tokens = random.Random(3).choices(range(150_000), k=HASHED_TOKENS)
    namespace, words = Namespace(bytes(32)), token_words(tokens)
    ours, listed, theirs = [], [], []
    for _ in range(100):
        listed.append(_micros(lambda: BlockChain.of(tokens, namespace).keys))
        if tree is not None:
            theirs.append(_micros(lambda: tree.hash(tokens)))
        ours.append(_micros(lambda: BlockChain.of(words, namespace).keys))
    return Hashing(median(ours) / 1000, median(listed) / 1000, median(theirs) / 1000 if theirs else None)


@dataclass(frozen=True, slots=True)
class Churn:
    """What stays of many events: memory in use after the first tenth and at the end, blocks known, sets of holders."""

    events: int
    bytes_early: int
    bytes_late: int
    per_second: float
    longest_ms: float


def churn(fleet: SyntheticFleet, index: PrefixIndex, events: int) -> Churn:
    """Sessions end and others begin until so many blocks were stored or removed; the fleet stays as large as it was."""
    alive, number, done, early, rates, longest = fleet.sessions, len(fleet.sessions), 0, 0, list[float](), 0.0
    while done < events:
        old = alive[number % len(alive)]
        new = alive[number % len(alive)] = fleet.session(number)
        said: list[Told] = [*old.removed(), *new.stored()]
        rate, _ = told(index, fleet, said)
        number, done = number + 1, done + sum(len(event.hashes) for _, event in said)
        rates.append(rate.per_second)
        longest = max(longest, rate.longest_ms)
        if not early and done >= events / 10:
            early = index.nbytes
    return Churn(done, early, index.nbytes, median(rates), longest)


def _micros(call: Callable[[], object]) -> float:
    started = time.process_time_ns()  # of all threads: the peer works on one of its own
    call()
    return (time.process_time_ns() - started) / 1000


def _spread(values: list[float]) -> Spread:
    values = sorted(values)
    return Spread(median(values), values[len(values) * 99 // 100])
