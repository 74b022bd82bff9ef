import json

import pytest
from hypothesis import given, settings

from gateway.tools.arguments import canonical
from tests.gateway.conversations import ARGUMENTS, OBJECTS


@settings(deadline=None)
@given(OBJECTS)
def test_every_spelling_comes_back_to_one(value: dict[str, object]) -> None:
    generated = json.dumps(value, ensure_ascii=False)
    assert canonical(generated) == generated
    assert canonical(json.dumps(value)) == generated
    assert canonical(json.dumps(value, separators=(",", ":"))) == generated
    assert canonical(json.dumps(value, indent=3)) == generated


@settings(deadline=None)
@given(ARGUMENTS)
def test_it_is_idempotent_and_keeps_the_value(text: str) -> None:
    spelled = canonical(text)
    assert canonical(spelled) == spelled
    if spelled != text and text:
        assert json.loads(spelled) == json.loads(text)


@pytest.mark.parametrize(
    "text", ["5", "[1]", "null", '{"value": ', "not json", '"s"', "[" * 5000, '{"x":"\\ud800"}', '{"x":NaN}']
)
def test_what_is_not_an_object_stays_as_it_is(text: str) -> None:
    assert canonical(text) == text


def test_numbers_keep_their_digits_and_keys_their_order() -> None:
    assert canonical('{"z":1.50,"a":1e5,"z":-0}') == '{"z": 1.50, "a": 1e5, "z": -0}'
