"""Loads that end while the engine looks: each is taken note of once."""

from array import array
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import pytest

from tests.worker.kv.layouts import LayoutClass
from tests.worker.kv.sequences import PUBLIC, check_slot
from tests.worker.kv.tiered import PATIENCE_S, live, tiered
from worker.kv.loading import Loader, Part


class EndsBetweenLooks(Future[int]):
    """A load that has ended when it is looked at for the second time."""

    def __init__(self, looks: int) -> None:
        super().__init__()
        self._looks = looks

    def done(self) -> bool:
        self._looks -= 1
        return self._looks < 0 and super().done()


def test_a_load_that_ends_while_another_is_taken_note_of_is_taken_note_of_next(
    layout: LayoutClass, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = tiered(tmp_path, layout=layout, blocks=6, host=8, disk=0)
    prompts = [1] * 9, [2] * 9
    for tokens in (*prompts, [3] * 25):
        live(memory, tokens)
    start, looks = Loader.start, iter((0, 1))

    def seen_late(loader: Loader, parts: list[Part], wanted: Callable[[], bool]) -> Future[int]:
        late = EndsBetweenLooks(next(looks))
        late.set_result(start(loader, parts, wanted).result(PATIENCE_S))
        return late

    monkeypatch.setattr(Loader, "start", seen_late)
    one, other = (memory.open(array("I", tokens), PUBLIC) for tokens in prompts)
    assert one is not None
    assert other is not None
    memory.poll()
    assert (one.loading, other.loading, memory.loading) == (False, True, True)
    memory.poll()
    assert (one.loading, other.loading, memory.loading) == (False, False, False)
    for holding, tokens in zip((one, other), prompts, strict=True):
        assert holding.cached.host == 8
        check_slot(memory, holding, tokens, 8)
        memory.close(holding)
    memory.check()
    memory.shut()
