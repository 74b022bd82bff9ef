"""The accounts of tags: who comes next, how far anyone can get ahead, and that idling saves nothing up."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.fairness import DECODE, PREFILL, Fairness, reply_cost

SLACK = 64


def fair(**slots: int) -> Fairness:
    """Tags with work, holding so many slots."""
    fairness = Fairness(SLACK)
    for tag, count in slots.items():
        fairness.enter(tag)
        fairness[tag].slots = count
    return fairness


def shared_out(fairness: Fairness, needs: Mapping[str, int], budget: int) -> dict[str, int]:
    """What each tag is given of one step."""
    left = dict(needs)
    shares: dict[str, int] = {}
    while budget and left:
        tag, most = fairness.turn(left, shares)
        count = min(most, budget)
        shares[tag] = shares.get(tag, 0) + count
        budget -= count
        left[tag] -= count
        if not left[tag]:
            del left[tag]
    return shares


def test_a_reply_token_costs_more_the_longer_its_context() -> None:
    assert reply_cost(1, 0) == DECODE
    assert reply_cost(1, 8192) == 2 * DECODE
    assert reply_cost(3, 100) == 3 * reply_cost(1, 100)


def test_a_tag_that_was_idle_is_lifted_to_the_least_served() -> None:
    fairness = fair(acme=0, globex=0)
    fairness["acme"].asked, fairness["globex"].asked = 900, 700
    fairness["acme"].computed, fairness["globex"].computed = 300, 800
    fairness.enter("initech")
    assert (fairness["initech"].asked, fairness["initech"].computed) == (700, 300)


def test_idling_saves_nothing_up() -> None:
    fairness = fair(acme=0, globex=0)
    fairness.leave("globex")
    fairness["acme"].asked = 5000
    fairness.enter("globex")
    assert fairness["globex"].asked == 5000


def test_leaving_and_coming_back_does_not_wipe_out_what_was_used() -> None:
    fairness = fair(acme=0, globex=0)
    fairness["globex"].asked = 5000
    fairness.leave("globex")
    fairness.enter("globex")
    assert fairness["globex"].asked == 5000


def test_a_second_request_changes_nothing_in_the_account() -> None:
    fairness = fair(acme=0, globex=0)
    fairness["acme"].asked = 5000
    fairness.enter("globex")
    assert (fairness["globex"].asked, fairness["globex"].jobs) == (0, 2)
    fairness.leave("globex")
    assert fairness.busy == 2


def test_an_idle_tag_is_forgotten_once_the_others_have_caught_up() -> None:
    fairness = fair(acme=0, globex=0, initech=0)
    fairness["globex"].asked = 500
    fairness.leave("globex")
    assert list(fairness._idle) == ["globex"]
    fairness["acme"].asked = fairness["initech"].asked = 600
    fairness.leave("initech")
    assert (fairness._idle, fairness.busy) == ({}, 1)


def test_nobody_is_remembered_when_nobody_has_work() -> None:
    fairness = fair(acme=0)
    fairness["acme"].asked = 500
    fairness.leave("acme")
    fairness.enter("acme")
    assert fairness["acme"].asked == 0


def test_a_slot_goes_to_who_has_fewest_then_to_who_was_served_least() -> None:
    fairness = fair(acme=2, globex=1, initech=1, hooli=1)
    fairness["globex"].asked, fairness["initech"].asked, fairness["hooli"].asked = 9, 3, 3
    assert fairness.line_up(["acme", "globex", "initech", "hooli"]) == ["initech", "hooli", "globex", "acme"]
    assert fairness.richest(["hooli", "globex", "acme"]) == ["acme", "globex", "hooli"]


@pytest.mark.parametrize(("poor", "rich", "outweighs"), [(0, 1, False), (0, 2, True), (3, 4, False), (3, 5, True)])
def test_a_slot_is_taken_only_from_who_has_more_even_then(poor: int, rich: int, outweighs: bool) -> None:
    assert fair(poor=poor, rich=rich).outweighs("poor", "rich") is outweighs


@pytest.mark.parametrize(
    ("slots", "ahead", "taken"),
    [(1, SLACK, False), (1, SLACK + 1, True), (2, SLACK + 1, False)],
)
def test_a_single_slot_changes_hands_when_its_tag_is_clearly_ahead(slots: int, ahead: int, taken: bool) -> None:
    fairness = fair(poor=0, rich=slots)
    fairness["rich"].asked = ahead
    assert fairness.takes_turns("poor", "rich") is taken


def test_a_short_prompt_is_not_held_up_by_a_long_one() -> None:
    assert shared_out(fair(acme=1, globex=1), {"acme": 5000, "globex": 40}, 50) == {"globex": 40, "acme": 10}


def test_of_two_short_prompts_that_of_the_tag_with_fewer_slots_comes_first() -> None:
    assert shared_out(fair(acme=3, globex=1), {"acme": 40, "globex": 45}, 50) == {"globex": 45, "acme": 5}
    assert shared_out(fair(acme=3, globex=1), {"acme": 40, "globex": 5000}, 50) == {"acme": 40, "globex": 10}


def test_a_tag_is_a_guest_where_another_holds_more_slots() -> None:
    fairness = fair(acme=3, globex=1, initech=3)
    assert [fairness.is_guest(tag) for tag in ("acme", "globex", "initech")] == [False, True, False]


def test_a_tag_that_is_ahead_waits_for_the_others() -> None:
    fairness = fair(acme=1, globex=1)
    fairness["globex"].computed = SLACK
    assert shared_out(fairness, {"acme": 5000, "globex": 40}, 50) == {"acme": 50}


def test_a_tag_alone_takes_everything_however_much_it_had() -> None:
    fairness = fair(acme=1, globex=1)
    fairness["acme"].computed = 1e6
    assert shared_out(fairness, {"acme": 5000}, 50) == {"acme": 50}


@given(
    prompts=st.lists(st.lists(st.integers(1, 500), min_size=1, max_size=8), min_size=2, max_size=5),
    budget=st.integers(1, 100),
)
def test_no_tag_gets_further_ahead_of_one_that_wants_more_than_the_slack(prompts: list[list[int]], budget: int) -> None:
    fairness = fair(**{f"tag-{number}": 1 for number in range(len(prompts))})
    lines = {f"tag-{number}": list(sizes) for number, sizes in enumerate(prompts)}
    while any(lines.values()):
        needs = {tag: line[0] for tag, line in lines.items() if line}
        shares = shared_out(fairness, needs, budget)
        assert sum(shares.values()) == min(budget, sum(needs.values()))
        for tag, count in shares.items():
            fairness[tag].computed += PREFILL * count
            lines[tag][0] -= count
            if not lines[tag][0]:
                lines[tag].pop(0)
        behind = min((fairness[tag].computed for tag in needs if shares.get(tag, 0) < needs[tag]), default=None)
        if behind is not None:
            assert all(fairness[tag].computed <= behind + SLACK for tag in shares)
