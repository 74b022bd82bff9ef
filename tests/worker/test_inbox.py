"""What other threads ask of the engine's: done in order, answered in any case, and its end for nobody's sake."""

from itertools import count

import pytest

from worker.inbox import Inbox
from worker.wire import WorkerError


def test_what_has_come_is_done_in_order_and_answered() -> None:
    inbox, numbers = Inbox(), count()
    futures = [inbox.put(lambda: next(numbers)) for _ in range(3)]
    assert not any(future.done() for future in futures)
    inbox.work()
    assert [future.result(0) for future in futures] == [0, 1, 2]


def test_a_refusal_is_for_who_asked_and_anything_else_for_both() -> None:
    inbox = Inbox()

    def refuse() -> None:
        raise WorkerError(409, "duplicate", "once more")

    refused, broken, later = inbox.put(refuse), inbox.put(lambda: 1 // 0), inbox.put(lambda: 1)
    with pytest.raises(ZeroDivisionError):
        inbox.work()
    with pytest.raises(WorkerError, match="once more"):
        refused.result(0)
    with pytest.raises(ZeroDivisionError):
        broken.result(0)
    assert not later.done()


def test_what_nobody_waits_for_any_more_is_not_done_and_stops_nothing() -> None:
    inbox, done = Inbox(), list[str]()
    cancelled, other = inbox.put(lambda: done.append("cancelled")), inbox.put(lambda: done.append("other"))
    assert cancelled.cancel()
    inbox.work()
    assert (done, other.done()) == (["other"], True)


def test_what_is_being_done_can_not_be_cancelled() -> None:
    inbox = Inbox()
    future = inbox.put(lambda: future.cancel())
    inbox.work()
    assert future.result(0) is False


def test_after_the_end_everyone_hears_of_it() -> None:
    inbox = Inbox()
    before, cancelled = inbox.put(lambda: 1), inbox.put(lambda: 1)
    cancelled.cancel()
    inbox.close()
    for future in (before, inbox.put(lambda: 1)):
        with pytest.raises(WorkerError) as caught:
            future.result(0)
        assert (caught.value.status, caught.value.code) == (503, "stopped")
