"""The queue: its order within a tag, and how much of it one tag can take."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.worker.rig import ask
from worker.grammar import Landing
from worker.sequence import Job, Sequence
from worker.tokenizer import Vocabulary
from worker.waiting import WaitingQueue


@pytest.fixture(scope="module")
def landing(tiny_vocabulary: Vocabulary) -> Landing:
    return Landing(tiny_vocabulary)


class Caller:
    """Makes sequences of one token that wait."""

    def __init__(self, vocabulary: Vocabulary, landing: Landing) -> None:
        self._parts = vocabulary, landing

    def sequence(self, tag: str, arrived: float = 0.0, priority: int = 50, index: int = 0) -> Sequence:
        job = Job(ask([5], tag=tag, priority=priority), [], lambda _: None)
        job.rank = arrived - priority
        return Sequence(job, index, *self._parts, 99)


@pytest.fixture
def caller(tiny_vocabulary: Vocabulary, landing: Landing) -> Caller:
    return Caller(tiny_vocabulary, landing)


def test_a_tag_is_served_by_arrival_less_a_second_for_each_priority(caller: Caller) -> None:
    queue = WaitingQueue(9)
    asked = [("first", 0.0, 50), ("urgent", 9.0, 60), ("late", 1.0, 50), ("more", 12.0, 60)]
    named = {name: caller.sequence("acme", arrived, priority) for name, arrived, priority in asked}
    for sequence in named.values():
        queue.push(sequence)
    assert queue.lines["acme"] == [named[name] for name in ("urgent", "first", "late", "more")]


def test_choices_of_one_request_stay_in_order(caller: Caller) -> None:
    queue = WaitingQueue(9)
    choices = [caller.sequence("acme", index=index) for index in range(3)]
    for sequence in reversed(choices):
        queue.push(sequence)
    assert queue.lines["acme"] == choices


def test_the_books_are_empty_when_all_have_gone(caller: Caller) -> None:
    queue = WaitingQueue(9)
    sequences = [caller.sequence(tag) for tag in ("acme", "globex", "acme")]
    for sequence in sequences:
        queue.push(sequence)
    assert (len(queue), queue.tokens, list(queue.lines)) == (3, 3, ["acme", "globex"])
    for sequence in sequences:
        queue.remove(sequence)
    assert (len(queue), queue.tokens, queue.lines) == (0, 0, {})


def test_one_tag_alone_fills_three_quarters(caller: Caller) -> None:
    queue = WaitingQueue(100)
    while not queue.is_full_for("acme", 1):
        queue.push(caller.sequence("acme"))
    assert len(queue) == 75
    assert not queue.is_full(1)
    assert not queue.is_full_for("globex", 1)


@given(tags=st.integers(1, 12), limit=st.integers(40, 300))
def test_whoever_queues_something_is_left_for_one_who_does_not(
    tiny_vocabulary: Vocabulary, landing: Landing, tags: int, limit: int
) -> None:
    queue, caller = WaitingQueue(limit), Caller(tiny_vocabulary, landing)
    names = [f"tag-{number}" for number in range(tags)]
    while open_ := [tag for tag in names if not queue.is_full_for(tag, 1)]:
        for tag in open_:
            if not queue.is_full_for(tag, 1):
                queue.push(caller.sequence(tag))
    assert not queue.is_full_for("newcomer", 1)
    assert not queue.is_full(1)


def test_a_request_that_is_larger_than_what_is_left_is_refused(caller: Caller) -> None:
    queue = WaitingQueue(4)
    assert not queue.is_full(4)
    assert queue.is_full(5)
    queue.push(caller.sequence("acme"))
    assert queue.is_full(4)
