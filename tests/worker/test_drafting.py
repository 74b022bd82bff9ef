"""Draft tokens of one sequence: how many are worth it, and what is learned from those that were not."""

from array import array
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.drafting import Chance, Drafter, Pool, Price
from worker.ngrams import NgramIndex

CYCLE = array("I", [1, 2, 3, 4, 5, 6, 7, 8] * 3)


def drafter() -> Drafter:
    return Drafter(Pool(lambda: NgramIndex((3,))))


@given(
    chances=st.one_of(
        st.lists(st.floats(0, 1), max_size=20),
        st.builds(lambda chance, most: [chance] * most, st.floats(0, 1), st.integers(0, 20)),
    ),
    row=st.floats(0, 3),
    token=st.floats(0, 1),
)
def test_the_length_is_the_one_that_is_worth_most(chances: list[float], row: float, token: float) -> None:
    def worth(length: int) -> float:
        reached = [prod(chances[:count]) for count in range(1, length + 1)]
        return sum(reached) - (row + length * token if length else 0)

    length = Price(row, token).length(chances)
    assert 0 <= length <= len(chances)
    assert worth(length) == pytest.approx(max(worth(other) for other in range(len(chances) + 1)), abs=1e-9)


@given(chance=st.floats(0, 1), row=st.floats(0, 3), token=st.floats(0, 1), most=st.integers(0, 20))
def test_drafts_that_pay_save_a_part_of_the_time(chance: float, row: float, token: float, most: int) -> None:
    price = Price(row, token)
    length = price.length([chance] * most)
    assert length == 0 or 0 < price.saved(chance, length) < 1
    assert Price(0.5, 0.25).saved(1.0, 2) == pytest.approx(1 / 3)  # three tokens in the time of two


def test_what_costs_nothing_is_drafted_in_full() -> None:
    assert drafter().propose(CYCLE, 5, Price()) == [1, 2, 3, 4, 5]


def test_what_has_not_been_seen_is_not_drafted() -> None:
    assert drafter().propose(array("I", range(50)), 5, Price()) == []


def test_drafts_that_are_rejected_get_fewer_until_there_are_none() -> None:
    one, price = drafter(), Price(row=0.1, token=0.2)
    lengths = []
    for _ in range(10):
        lengths.append(len(one.propose(CYCLE, 16, price)))
        if lengths[-1]:
            one.verified(0, rejected=True)
    assert lengths[0] > 1
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[-1] == 0


def test_drafts_that_are_accepted_get_longer() -> None:
    one, price = drafter(), Price(row=0.1, token=0.3)
    lengths = []
    for _ in range(6):
        lengths.append(len(one.propose(CYCLE, 16, price)))
        one.verified(lengths[-1], rejected=False)
    assert lengths == sorted(lengths)
    assert lengths[-1] > 2 * lengths[0]


def test_a_reply_whose_drafts_failed_is_given_another_chance_after_a_while() -> None:
    one, price = drafter(), Price(row=0.1, token=0.2)
    for _ in range(4):
        one.propose(CYCLE, 16, price)
        one.verified(0, rejected=True)
    silent = 0
    while not one.propose(CYCLE, 16, price):
        silent += 1
        assert silent < 500
    assert silent > 10


def test_a_new_reply_expects_what_the_others_have_seen() -> None:
    pool, price = Pool(lambda: NgramIndex((3,))), Price(token=0.4)
    first = Drafter(pool)
    for _ in range(30):
        first.propose(CYCLE, 4, Price())
        first.verified(0, rejected=True)
    assert Drafter(pool).propose(CYCLE, 16, price) == []
    assert drafter().propose(CYCLE, 16, price)


def test_what_numbers_the_entries_of_a_list_is_not_guessed_but_what_is_between_is() -> None:
    """The token behind 5 6 7 is another each time. When that has been seen often enough, drafts end before it."""
    one, price, tokens = drafter(), Price(token=0.3), array("I")
    drafted: list[list[int]] = []
    for number in range(100, 112):
        for token in (number, 1, 2, 3, 4, 5, 6, 7):
            drafts = one.propose(tokens, 16, price)
            if drafts:
                drafted.append(drafts)
                one.verified(int(drafts[0] == token), rejected=drafts[0] != token)
            tokens.append(token)
    assert [drafts[0] for drafts in drafted[-4:]] == [4, 5, 6, 7]
    assert all(drafts[-1] == 7 for drafts in drafted[-3:])


def test_a_chance_is_that_of_its_tries_and_forgets_the_oldest() -> None:
    chance = Chance()
    assert chance.value(0.25) == 0.25
    for _ in range(200):
        chance.verified(3, rejected=True, keep=0.99)
    assert chance.value(0.5) == pytest.approx(0.75, abs=0.01)
    for _ in range(40):
        chance.verified(0, rejected=True)
    assert chance.value(0.0) < 0.01
