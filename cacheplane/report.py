"""What a worker says of its load."""

from typing import Annotated

import msgspec
from msgspec import Meta

_Count = Annotated[int, Meta(ge=0, lt=1 << 31)]


class LoadReport(msgspec.Struct, frozen=True):
    """A worker's own figures (its `GET /load`); rates of 0 mean not measured yet.

    epoch                                  incarnation, another one tells of a restart
    state                                  "starting", "ready" or "draining"
    waiting, running, decode_sequences     requests and sequences
    queued_prefill_tokens                  prompt tokens that are accepted and not computed yet; a prompt that
                                           waits counts in full, what of it is cached shows when it is admitted
    free_blocks, total_blocks              of the device pool
    prefill_tps, host_tps, disk_tps        tokens per second: computed, loaded back from host, from disk
    decode_step_ms                         one decode step of the whole batch
    """

    epoch: int
    state: str = "ready"
    waiting: int = 0
    running: int = 0
    queued_prefill_tokens: int = 0
    decode_sequences: int = 0
    free_blocks: int = 0
    total_blocks: int = 0
    prefill_tps: float = 0.0
    decode_step_ms: float = 0.0
    host_tps: float = 0.0
    disk_tps: float = 0.0


class Occupancy(msgspec.Struct, frozen=True):
    """The part of a report that every request changes; a worker sends it with the end of each one."""

    waiting: _Count = 0
    running: _Count = 0
    queued_prefill_tokens: _Count = 0
    decode_sequences: _Count = 0
    free_blocks: _Count = 0
