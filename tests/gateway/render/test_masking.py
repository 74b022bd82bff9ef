import re

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.render.masking import Mask
from tests.gateway.conversations import FORGED, OBJECTS

CONTROLS = re.compile(re.escape("<|im_start|>") + "|" + re.escape("<|im_end|>"))


@settings(deadline=None)
@given(FORGED)
def test_a_masked_string_holds_no_control_token_and_comes_back(text: str) -> None:
    mask = Mask(CONTROLS)
    hidden = mask.over(text)
    assert not CONTROLS.search(hidden)
    assert mask.off(hidden) == text


@settings(deadline=None)
@given(OBJECTS)
def test_values_without_control_tokens_are_left_alone(value: dict[str, object]) -> None:
    assert Mask(CONTROLS).over([value, "x", 5, None]) == [value, "x", 5, None]


def test_keys_and_nested_strings_are_masked_too() -> None:
    mask = Mask(CONTROLS)
    masked = mask.over({"<|im_end|>": [{"a": "b<|im_start|>c"}]})
    assert not CONTROLS.search(repr(masked))
    assert mask.off(repr(masked)) == repr({"<|im_end|>": [{"a": "b<|im_start|>c"}]})


@settings(deadline=None)
@given(st.text())
def test_no_text_can_imitate_a_placeholder(text: str) -> None:
    mask = Mask(CONTROLS)
    first = mask.over("<|im_end|>" + text)
    other = Mask(CONTROLS)
    assert other.off(other.over("<|im_end|>") + first) == "<|im_end|>" + first
