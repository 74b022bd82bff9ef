"""A load: blocks that are asked for a little ahead of their copies, in memory that is their own until then."""

from collections.abc import Callable
from concurrent.futures import Future
from threading import Event
from weakref import ref

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from cacheplane.wire import Tier
from tests.worker.kv.tiered import PATIENCE_S
from worker.kv.copying import CopierInPlace
from worker.kv.loading import Loader, Part
from worker.kv.shape import Block

windows = st.integers(2, 5)


class Source:
    """Blocks that come in memory of their own, the nth full of n; some are a miss.

    asked    how many were asked for, in order
    coming   of those, what is still in memory; `most` is the most that ever was
    """

    def __init__(self, size: int, misses: frozenset[int] = frozenset()) -> None:
        self.size, self.misses = size, misses
        self.asked = self.most = 0
        self.targets = torch.full((size, 1), -1.0)
        self._images: list[ref[Tensor]] = []

    @property
    def coming(self) -> int:
        return sum(image() is not None for image in self._images)

    def load(self, window: int, wanted: Callable[[], bool] = lambda: True) -> int:
        loader = Loader(CopierInPlace(), 1, ahead_bytes=window)
        parts = [Part((self.targets[number],), Tier.DISK, self._asking(number)) for number in range(self.size)]
        try:
            return loader.start(parts, wanted).result(PATIENCE_S)
        finally:
            loader.close()

    def _asking(self, number: int) -> Callable[[], Future[Block | None]]:
        def ask() -> Future[Block | None]:
            assert number == self.asked
            self.asked += 1
            image, future = torch.full((1,), float(number)), Future[Block | None]()
            self._images.append(ref(image))
            future.set_result(None if number in self.misses else (image,))
            self.most = max(self.most, self.coming)
            return future

        return ask


@given(size=st.integers(1, 20), window=windows)
def test_a_load_holds_no_more_memory_than_its_window_and_all_of_that(size: int, window: int) -> None:
    source = Source(size)
    assert source.load(window) == size
    assert source.targets.flatten().tolist() == list(range(size))
    assert source.most == min(size, window)
    assert source.coming == 0


@given(size=st.integers(1, 20), window=windows, data=st.data())
def test_a_load_ends_at_a_miss_and_gives_back_what_was_asked_ahead(size: int, window: int, data: st.DataObject) -> None:
    miss = data.draw(st.integers(0, size - 1))
    source = Source(size, frozenset({miss}))
    assert source.load(window) == miss
    assert source.targets.flatten().tolist() == [*range(miss), *[-1] * (size - miss)]
    assert source.asked == min(size, miss + window)
    assert source.coming == 0


@given(size=st.integers(1, 20), window=windows, data=st.data())
def test_a_load_that_is_wanted_no_longer_ends_at_the_next_block(size: int, window: int, data: st.DataObject) -> None:
    looks = data.draw(st.integers(0, size))
    source = Source(size)
    assert source.load(window, wanted=iter([True] * looks + [False] * size).__next__) == looks
    assert source.asked == (min(size, looks - 1 + window) if looks else 0)
    assert source.coming == 0


def test_a_load_has_ended_only_when_nothing_that_it_asked_for_is_on_its_way() -> None:
    """The first is a miss; the second is being read, the third still waits for a reader."""
    read, waits = Future[Block | None](), Future[Block | None]()
    read.set_running_or_notify_cancel()
    missed = Future[Block | None]()
    missed.set_result(None)
    into = (torch.zeros(1),)
    parts = [Part(into, Tier.DISK, lambda one=one: one) for one in (missed, read, waits)]  # type: ignore[misc]
    loader = Loader(CopierInPlace(), 1, ahead_bytes=3, patience=PATIENCE_S)
    given_up = Event()
    waits.add_done_callback(lambda _: given_up.set())
    came = loader.start(parts, lambda: True)
    assert given_up.wait(PATIENCE_S)
    assert waits.cancelled()
    assert not came.done()
    read.set_result((torch.ones(1),))
    assert came.result(PATIENCE_S) == 0
    assert into[0].item() == 0
    loader.close()


@pytest.mark.parametrize("begun", [True, False])
def test_a_load_ends_at_a_block_that_takes_too_long_and_the_tier_is_known_to_be_slow(begun: bool) -> None:
    """Whether a reader hangs in it, or in another one before."""
    here, hangs = Future[Block | None](), Future[Block | None]()
    here.set_result((torch.ones(1),))
    if begun:
        hangs.set_running_or_notify_cancel()
    into = torch.zeros(2, 1)
    parts = [Part((into[at],), Tier.DISK, lambda one=one: one) for at, one in enumerate((here, hangs))]  # type: ignore[misc]
    loader = Loader(CopierInPlace(), 1, ahead_bytes=1, patience=0.05)
    assert loader.start(parts, lambda: True).result(PATIENCE_S) == 1
    assert (into.flatten().tolist(), hangs.cancelled()) == ([1, 0], not begun)
    assert 0 < loader.rates[Tier.DISK].gbps < 1e-7
    loader.close()
