"""One simulated worker: blocks in LRU order on two tiers, prompts computed one after another, decoding beside them."""

from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from bench.replay.trace import Request
from cacheplane.report import LoadReport
from cacheplane.wire import Batch, BlockRemoved, BlockStored, Event, Tier


class Machine(msgspec.Struct, frozen=True):
    """What every simulated worker is like.

    blocks, host_blocks      of the pool on the device, and of the tier below; host_blocks 0 is none
    prefill_tps, host_tps    tokens per second: computed, loaded back from host
    decode_ms, sequence_ms   one decode step, and what each sequence of the batch adds to it

    The rates are those of SMG's mock worker (`crates/mock_worker`, "realistic" engine); host_tps is 12.5 times
    as fast as computing.
    """

    blocks: int
    host_blocks: int = 0
    prefill_tps: float = 8_000.0
    host_tps: float = 100_000.0
    decode_ms: float = 6.0
    sequence_ms: float = 0.35


@dataclass(slots=True)
class Job:
    """A request on its worker; cached and loaded in blocks, times in seconds."""

    request: Request
    arrived: float
    cached: int = 0
    loaded: int = 0
    began: float = 0.0
    prefilled: float = 0.0

    @property
    def computed(self) -> int:
        """Tokens."""
        return self.request.prompt_tokens - self.cached * self.request.chain.block_size


@dataclass(slots=True)
class Blocks:
    """The blocks of one worker. The deepest block of a chain is always its least recently used one.

    Not modelled: the blocks of generated tokens, and pins; a running prompt's blocks are among the youngest.
    """

    capacity: int
    host_capacity: int
    device: OrderedDict[bytes, None] = field(default_factory=OrderedDict)
    host: OrderedDict[bytes, None] = field(default_factory=OrderedDict)

    def match(self, hashes: Sequence[bytes]) -> tuple[int, int]:
        """(on device, on host) of the leading run that is held at all."""
        near = far = 0
        for key in hashes:
            if key in self.device:
                near += 1
            elif key in self.host:
                far += 1
            else:
                break
        return near, far

    def store(self, hashes: Sequence[bytes], block_size: int) -> list[Event]:
        """The whole chain is on the device now and was used just now; what had to go for it is gone."""
        held = next((at for at, key in enumerate(hashes) if key not in self.device), len(hashes))
        fresh, parent = list(hashes[held:]), hashes[held - 1] if held else None
        for key in reversed(hashes):
            self.device[key] = None
            self.device.move_to_end(key)
        events: list[Event] = [BlockStored(fresh, parent, block_size, Tier.DEVICE)] if fresh else []
        evicted = [self.device.popitem(last=False)[0] for _ in range(len(self.device) - self.capacity)]
        if evicted:
            events += self._demote(evicted, block_size)
        return events

    def touch(self, hashes: Sequence[bytes]) -> None:
        for key in reversed(hashes):
            if key in self.device:
                self.device.move_to_end(key)

    def _demote(self, evicted: list[bytes], block_size: int) -> list[Event]:
        events: list[Event] = []
        if self.host_capacity:
            events.append(BlockStored(evicted, None, block_size, Tier.HOST))
            for key in evicted:
                self.host[key] = None
                self.host.move_to_end(key)
            if dropped := [self.host.popitem(last=False)[0] for _ in range(len(self.host) - self.host_capacity)]:
                events.append(BlockRemoved(dropped, Tier.HOST))
        return [*events, BlockRemoved(evicted, Tier.DEVICE)]


class Engine:
    """A worker: one prompt is computed at a time, in order of arrival; a match is made when computing begins."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.blocks = Blocks(machine.blocks, machine.host_blocks)
        self.waiting: deque[Job] = deque()
        self.current: Job | None = None
        self.decoding = 0
        self.computed_tokens = 0

    def accept(self, job: Job, now: float) -> float | None:
        """A request arrived. The time at which its prompt will be computed, None when it has to wait."""
        self.waiting.append(job)
        return self.begin(now) if self.current is None else None

    def begin(self, now: float) -> float | None:
        """Start on the next prompt, if any waits. The time at which it will be computed."""
        if not self.waiting:
            return None
        job = self.current = self.waiting.popleft()
        device, host = self.blocks.match(job.request.chain.hashes)
        job.cached, job.loaded, job.began = device + host, host, now
        self.computed_tokens += job.computed
        load = host * job.request.chain.block_size / self.machine.host_tps
        return now + load + job.computed / self.machine.prefill_tps

    def prefilled(self, now: float) -> tuple[Job, float, Batch]:
        """The current prompt is computed: (its job, when its last token comes, what changed in the cache)."""
        job, self.current = self.current, None
        assert job is not None
        job.prefilled = now
        chain = job.request.chain
        batch = Batch(now, self.blocks.store(chain.hashes, chain.block_size))
        self.decoding += 1
        step = self.machine.decode_ms + self.machine.sequence_ms * self.decoding
        return job, now + job.request.output_tokens * step / 1000, batch

    def ended(self, job: Job) -> None:
        self.decoding -= 1
        self.blocks.touch(job.request.chain.hashes)

    def report(self, now: float) -> LoadReport:
        """What our worker says of itself: prompts that wait count in full, their match is made later."""
        queued = sum(job.request.prompt_tokens for job in self.waiting)
        if self.current is not None:
            done = (now - self.current.began) * self.machine.prefill_tps
            queued += max(0, int(self.current.computed - done))
        return LoadReport(
            epoch=1,
            waiting=len(self.waiting),
            running=self.decoding + (self.current is not None),
            queued_prefill_tokens=queued,
            decode_sequences=self.decoding,
            free_blocks=self.machine.blocks - len(self.blocks.device),
            total_blocks=self.machine.blocks,
            prefill_tps=self.machine.prefill_tps,
            decode_step_ms=self.machine.decode_ms + self.machine.sequence_ms * self.decoding,
            host_tps=self.machine.host_tps,
        )
