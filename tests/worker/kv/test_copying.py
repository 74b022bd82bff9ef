"""What CUDA is asked to do for a copy, told by a stand-in for its streams: the order, and from where to where."""

from contextlib import nullcontext

import pytest
import torch
from torch import Tensor

from worker.kv import copying
from worker.kv.copying import CopierInPlace, CudaCopier, copier_for
from worker.kv.shape import Block

CUDA = torch.device("cuda")


class Streams:
    """Writes down what streams are told, and which blocks are copied: those of `names`, by the tensor's address."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.names: dict[int, str] = {}

    def stream(self, name: str) -> "Stream":
        return Stream(self, name)

    def name(self, name: str, block: Block) -> Block:
        self.names[block[0].data_ptr()] = name
        return block

    def copy(self, into: Block, source: Block) -> None:
        self.told.append(f"{self.names[source[0].data_ptr()]} -> {self.names[into[0].data_ptr()]}")


class Stream:
    """One stream, and an event on it."""

    def __init__(self, streams: Streams, name: str) -> None:
        self._streams, self.name = streams, name

    def record_event(self) -> "Stream":
        return self

    def wait_stream(self, other: "Stream") -> None:
        self._streams.told.append(f"{self.name} waits for {other.name}")

    wait_event = wait_stream

    def synchronize(self) -> None:
        self._streams.told.append(f"the thread waits for {self.name}")


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> Streams:
    """In place of CUDA's, with the computing stream and the copier's own."""
    streams = Streams()
    monkeypatch.setattr(torch.cuda, "Stream", lambda _: streams.stream("copies"))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: streams.stream("computing"))
    monkeypatch.setattr(torch.cuda, "stream", lambda _: nullcontext())
    monkeypatch.setattr(copying, "copy_block", streams.copy)
    monkeypatch.setattr(copying, "_pinned_like", lambda block: streams.name("staging", block_like(block)))
    monkeypatch.setattr(Tensor, "is_pinned", lambda part: streams.names[part.data_ptr()] == "pinned")
    return streams


def block_like(block: Block) -> Block:
    return tuple(torch.empty_like(part) for part in block)


def test_what_is_pinned_goes_straight_to_the_device(streams: Streams) -> None:
    into, source = (streams.name(name, (torch.zeros(4),)) for name in ("device", "pinned"))
    CudaCopier(CUDA, into).inlet()(into, source)
    assert streams.told == ["copies waits for computing", "pinned -> device", "the thread waits for copies"]


def test_what_is_not_is_staged_first(streams: Streams) -> None:
    into, source = (streams.name(name, (torch.zeros(4),)) for name in ("device", "pageable"))
    CudaCopier(CUDA, into).inlet()(into, source)
    first, *rest = streams.told
    assert first == "pageable -> staging"
    assert rest == ["copies waits for computing", "staging -> device", "the thread waits for copies"]


def test_a_copy_out_comes_behind_what_was_computed_and_before_what_will_be(streams: Streams) -> None:
    copier = CudaCopier(CUDA, (torch.zeros(4),))
    copy = copier.start(lambda: streams.told.append("copied"))
    copy.order()
    assert streams.told == ["copies waits for computing", "copied", "computing waits for copies"]


def test_a_device_gets_the_copier_that_it_needs(streams: Streams) -> None:
    block = (torch.zeros(4),)
    assert isinstance(copier_for(CUDA, block), CudaCopier)
    assert isinstance(copier_for(torch.device("cpu"), block), CopierInPlace)
