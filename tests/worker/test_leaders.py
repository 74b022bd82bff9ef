"""Requests that arrive together and begin alike: what they share is computed once, and nobody waits for it in vain."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cacheplane.identity import Namespace
from tests.worker.rig import ACME, BLOCK, GLOBEX, Rig, ask, greedy
from worker.model import Model
from worker.tokenizer import Vocabulary
from worker.wire import GenerateRequest, SpanWire

COMMON = list(range(10, 110))  # 12 full blocks and a half


def admitted(rig: Rig) -> list[str]:
    rig.scheduler.admit()
    return [sequence.job.id for sequence in rig.scheduler.running]


def test_a_common_beginning_is_computed_once(rig: Rig) -> None:
    tails = [[200], [201] * 20, [202] * 9]
    replies = [rig.submit(ask([*COMMON, *tail])) for tail in tails]
    rig.run()
    shared = len(COMMON) // BLOCK * BLOCK
    assert [reply.start.cached.device for reply in replies] == [0, shared, shared]
    assert rig.scheduler.work.prefilled == sum(len(COMMON) + len(tail) for tail in tails) - 2 * shared
    rig.check_idle()


@settings(max_examples=20)
@given(cuts=st.lists(st.integers(0, len(COMMON)), min_size=2, max_size=6))
def test_each_block_is_computed_once_however_much_is_shared(
    tiny_model: Model, tiny_vocabulary: Vocabulary, cuts: list[int]
) -> None:
    rig = Rig(tiny_model, tiny_vocabulary, slots=6)
    prompts = [[*COMMON[:cut], 200 + number] for number, cut in enumerate(cuts)]
    for prompt in prompts:
        rig.submit(ask(prompt, sampling=greedy(1)))
    rig.run()
    blocks = {tuple(prompt[:end]) for prompt in prompts for end in range(BLOCK, len(prompt) + 1, BLOCK)}
    partial = sum(len(prompt) % BLOCK for prompt in prompts)
    # A prompt of whole blocks computes its last one in any case, for its logits.
    again = sum(BLOCK for prompt in prompts if len(prompt) % BLOCK == 0)
    assert rig.scheduler.work.prefilled <= len(blocks) * BLOCK + partial + again
    # What is computed only once is a token of one prefix: part of a block may have been copied too.
    prefixes = {tuple(prompt[:end]) for prompt in prompts for end in range(1, len(prompt) + 1)}
    assert rig.scheduler.work.prefilled >= len(prefixes)
    rig.check_idle()


def test_nobody_waits_for_another_namespace(rig: Rig) -> None:
    rig.submit(ask([*COMMON, 1], request_id="acme"))
    rig.submit(ask([*COMMON, 2], request_id="globex", namespace=GLOBEX))
    assert admitted(rig) == ["acme", "globex"]
    rig.run()
    assert rig.scheduler.work.prefilled == 2 * len(COMMON) + 2


def test_nobody_waits_for_blocks_behind_a_barrier_of_another(rig: Rig) -> None:
    """The first block is common to the group, the rest is each tenant's own."""
    for name, own in (("acme", ACME), ("globex", GLOBEX)):
        spans = [SpanWire(0, Namespace(b"s" * 32).hex), SpanWire(BLOCK, own.hex)]
        rig.submit(GenerateRequest(name, [*COMMON, 1], spans, greedy(1)))
    assert admitted(rig) == ["acme"]
    rig.engine.step()
    assert admitted(rig) == ["acme", "globex"]
    rig.run()
    assert rig.scheduler.work.prefilled == 2 * len(COMMON) + 2 - BLOCK


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (ask(COMMON, store=False), ask(COMMON)),  # stores nothing
        (ask(COMMON[: BLOCK - 1]), ask(COMMON)),  # less than a block
        (ask(COMMON), ask(COMMON[:BLOCK])),  # a block, but the last token has to be computed
        (ask(COMMON), ask(COMMON[1:])),
    ],
)
def test_nobody_waits_for_blocks_that_will_not_come(rig: Rig, first: GenerateRequest, second: GenerateRequest) -> None:
    for request in (first, second):
        rig.submit(request)
    assert len(admitted(rig)) == 2
    rig.run()
    rig.check_idle()


def test_the_wait_is_over_as_soon_as_the_common_blocks_are_there(rig: Rig) -> None:
    rig.submit(ask([*COMMON[:32], *[200] * 150], request_id="long"))
    rig.submit(ask([*COMMON[:32], 3], request_id="short"))
    assert admitted(rig) == ["long"]
    rig.engine.step()
    assert admitted(rig) == ["long", "short"]


def test_a_wait_ends_with_the_request_that_was_waited_for(rig: Rig) -> None:
    leader = ask(COMMON, request_id="leader")
    rig.submit(leader)
    rig.submit(ask(COMMON, request_id="follower"))
    assert admitted(rig) == ["leader"]
    rig.engine.abort("leader")
    assert admitted(rig) == ["follower"]
    rig.run()
    rig.check_idle()


def test_a_follower_may_leave(rig: Rig) -> None:
    rig.submit(ask(COMMON, request_id="leader"))
    reply = rig.submit(ask(COMMON, request_id="follower"))
    rig.engine.step()
    assert rig.engine.abort("follower")
    reply.check()
    rig.run()
    rig.check_idle()


def test_a_full_pool_sends_followers_on_their_way(tiny_model: Model, tiny_vocabulary: Vocabulary) -> None:
    rig = Rig(tiny_model, tiny_vocabulary, blocks=2)
    replies = [rig.submit(ask([*COMMON, number])) for number in (1, 2)]
    rig.engine.step()
    assert len(rig.scheduler.running) == 1
    rig.engine.step()  # the third block found no room
    assert len(rig.scheduler.running) == 2
    rig.run()
    for reply in replies:
        reply.check()
    rig.check_idle()


def test_waiting_for_another_tag_never_takes_longer_than_computing_it(
    tiny_model: Model, tiny_vocabulary: Vocabulary
) -> None:
    """The leader gets a half or less of each step, so the follower gives up when it could have been done alone."""
    rig = Rig(tiny_model, tiny_vocabulary, budget=32)
    rig.submit(ask([*COMMON, 1], tag="acme", request_id="leader"))
    for number in range(2):
        rig.submit(ask([150 + number] * 96, tag=f"other-{number}", request_id=f"other-{number}"))
    rig.submit(ask([*COMMON, 2], tag="globex", request_id="follower"))
    assert "follower" not in admitted(rig)
    before = rig.scheduler.work.prefilled
    while "follower" not in admitted(rig):
        rig.engine.step()
    assert rig.scheduler.work.prefilled - before <= len(COMMON) + 32
    rig.run()
    rig.check_idle()


def test_one_of_higher_priority_waits_for_no_longer_than_it_would_take_either(rig: Rig) -> None:
    for number in range(2):
        rig.submit(ask([150 + number] * 96, request_id=f"other-{number}"))
    rig.submit(ask([*COMMON, 1], request_id="leader"))
    rig.engine.step()
    rig.submit(ask([*COMMON, 2], request_id="follower", priority=90))
    before = rig.scheduler.work.prefilled
    while "follower" not in admitted(rig):
        rig.engine.step()
    assert rig.scheduler.work.prefilled - before <= len(COMMON) + 32
    assert rig.scheduler.running[-2].computed == 0  # the leader
    rig.run()
    rig.check_idle()
