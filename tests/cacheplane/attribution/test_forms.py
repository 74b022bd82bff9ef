"""What counts as the same text, form by form."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cacheplane.attribution.forms import masked, ordered, spaced


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a\r\nb", "a\nb"),
        ("a  b ", "a b"),
        ('{"a": "x\\r\\ny"}', '{"a": "x\\ny"}'),
        ("\tone\n\n two", "one two"),
    ],
)
def test_spacing_is_no_difference(one: str, other: str) -> None:
    assert spaced(one) == spaced(other)
    assert spaced(one + "!") != spaced(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"a": 1, "b": {"c": 2, "d": 3}}', '{"b":{"d":3,"c":2},"a":1}'),
        ('told:\n{"a": 1, "b": 2}\nend', 'told:\n{"b": 2, "a": 1}\nend'),
        ('x\n{"a": 1, "b": 2}\n{"c": 1, "d": 2}', 'x\n{"b": 2, "a": 1}\n{"d": 2, "c": 1}'),
    ],
)
def test_the_order_of_keys_is_no_difference(one: str, other: str) -> None:
    assert ordered(one) == ordered(other)


@pytest.mark.parametrize(("one", "other"), [('{"a": [1, 2]}', '{"a": [2, 1]}'), ('{"a": 1}', '{"a": 2}'), ("{a", "{b")])
def test_the_order_of_a_list_and_a_value_are(one: str, other: str) -> None:
    assert ordered(one) != ordered(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("at 2026-11-29T21:05:33.123Z", "at 2026-11-30T09:00:00.001Z"),
        ("on Sunday, 29 Nov 2026", "on Monday, 3 Dec 2026"),
        ("since March 3", "since October 14"),
        ("at 9:05 AM", "at 10:40 PM"),
        ("id 550e8400-e29b-41d4-a716-446655440000", "id 7d444840-9dc0-11d1-b245-5ffdce74fad2"),
        ("id deadbeef12345678", "id 60303ae22b998861"),
        ("call_8Kd02Lq9fXz1 came", "call_1Pz77Ww3aBc4 came"),
        ("now 1796072733", "now 1796072755"),
        ("try 3 of 5", "try 4 of 5"),
    ],
)
def test_values_that_change_by_themselves_are_no_difference(one: str, other: str) -> None:
    assert masked(one) == masked(other)


@pytest.mark.parametrize(
    ("one", "other"), [("weigh the salt", "weigh the grain"), ("get_order", "get_orders"), ("v1-beta", "v1-alpha")]
)
def test_words_are(one: str, other: str) -> None:
    assert masked(one) != masked(other)


@given(st.text())
def test_any_text_has_all_forms_and_each_is_its_own_form(text: str) -> None:
    assert spaced(spaced(text)) == spaced(text)
    assert masked(ordered(text)) == masked(ordered(text))
