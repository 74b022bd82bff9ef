"""Copies between the device and main memory: how they are started, and how they stay in order with the computing."""

from collections.abc import Callable
from typing import Protocol

import torch

from worker.kv.shape import Block
from worker.kv.store import copy_block

Inlet = Callable[[Block, Block], None]  # copies into the first from the second


class Copy(Protocol):
    """A copy that was started. Its source and its target are its own until it has ended."""

    @property
    def done(self) -> bool:
        """Whether it has ended."""

    def wait(self) -> None:
        """Returns when it has ended."""

    def order(self) -> None:
        """What the device does from now on comes after it: the source may be overwritten there. Returns at once."""


class Copier(Protocol):
    """Starts copies beside the engine's own work, one after another."""

    def start(self, copy: Callable[[], None]) -> Copy:
        """Runs a function that copies from the device, behind all that was computed. The engine's thread only."""

    def inlet(self) -> Inlet:
        """For one other thread, a way to copy onto the device, behind all that was computed so far.

        When a copy returns it has ended, and the source is its owner's again. The engine's thread only.
        """


class Ended:
    """A copy that had ended before it could be looked at."""

    done = True

    def wait(self) -> None: ...

    def order(self) -> None: ...


class CopierInPlace:
    """On the CPU a copy is made where it is asked for."""

    def start(self, copy: Callable[[], None]) -> Copy:
        copy()
        return Ended()

    def inlet(self) -> Inlet:
        return copy_block


class CudaCopy:
    """A copy on a stream of its own."""

    def __init__(self, ended: torch.cuda.Event, device: torch.device) -> None:
        self._ended = ended
        self._device = device

    @property
    def done(self) -> bool:
        ended: bool = self._ended.query()  # type: ignore[no-untyped-call]
        return ended

    def wait(self) -> None:
        self._ended.synchronize()

    def order(self) -> None:
        torch.cuda.current_stream(self._device).wait_event(self._ended)


class CudaCopier:
    """A stream beside the computing one.

    What comes in from pinned memory, as the host tier's is, goes straight to the device. Anything else goes through a
    pinned buffer of one block, which is used again only when its copy has ended: a copy from pageable memory would hold
    up the computing too.
    """

    def __init__(self, device: torch.device, block: Block) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._staging = _pinned_like(block)

    def start(self, copy: Callable[[], None]) -> Copy:
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            copy()
            return CudaCopy(self._stream.record_event(), self._device)

    def inlet(self) -> Inlet:
        computed = torch.cuda.current_stream(self._device).record_event()

        def bring(into: Block, source: Block) -> None:
            pinned = source if all(part.is_pinned() for part in source) else self._staging
            if pinned is not source:
                copy_block(pinned, source)
            with torch.cuda.stream(self._stream):
                self._stream.wait_event(computed)
                copy_block(into, pinned)
                self._stream.record_event().synchronize()

        return bring


def _pinned_like(block: Block) -> Block:
    return tuple(torch.empty(part.shape, dtype=part.dtype, pin_memory=True) for part in block)


def copier_for(device: torch.device, block: Block) -> Copier:
    """block: one of those that are to be copied"""
    return CudaCopier(device, block) if device.type == "cuda" else CopierInPlace()
