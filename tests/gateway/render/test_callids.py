"""Ids of calls as templates of Mistral's family take them."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.render.callids import LENGTH, short


@given(st.text())
def test_every_id_becomes_nine_letters_or_digits_always_the_same(call_id: str) -> None:
    name = short(call_id)
    assert len(name) == LENGTH
    assert name.isascii()
    assert name.isalnum()
    assert short(call_id) == short(name) == name


def test_ids_stay_apart() -> None:
    assert len({short(f"call_{number}") for number in range(10_000)}) == 10_000


def test_an_id_that_is_taken_as_it_is_stays() -> None:
    assert short("aB3dE6gH9") == "aB3dE6gH9"
