from typing import Any

import pytest
from hypothesis import given, settings

from gateway.chat.messages import Message
from gateway.errors import BadRequestError
from gateway.render.templates import ChatTemplate, choose
from tests.gateway.conversations import PLAIN, messages
from tests.gateway.small_bpe import SMOLLM2_TEMPLATE, SPECIALS

OWN = ChatTemplate("own", SMOLLM2_TEMPLATE)
DECLARED = choose(SMOLLM2_TEMPLATE, SPECIALS)
HI = [{"role": "user", "content": "hi"}]
TOOL = {"type": "function", "function": {"name": "f", "description": "d<é>", "parameters": {"b": 1, "a": 2}}}


def test_a_template_that_ignores_tools_gives_way_to_the_declared_one() -> None:
    assert not OWN.prints_tools
    assert (DECLARED.name, DECLARED.prints_tools) == ("chatml-hermes", True)


def test_a_template_that_prints_tools_is_kept() -> None:
    source = "{{ tools | tojson if tools }}" + SMOLLM2_TEMPLATE
    assert choose(source, SPECIALS).name == "own"


def test_a_model_of_another_family_keeps_its_template() -> None:
    assert choose(SMOLLM2_TEMPLATE, ["<s>", "</s>"]).name == "own"


@settings(max_examples=40, deadline=None)
@given(messages(PLAIN))
def test_without_tools_the_declared_template_prints_what_the_models_own_prints(said: tuple[Message, ...]) -> None:
    shown = [{"role": message.role, "content": message.text} for message in said if message.role != "tool"]
    if shown:
        for generation in (True, False):
            own = OWN.render(shown, None, generation=generation)
            assert DECLARED.render(shown, None, generation=generation) == own


def test_tools_are_listed_in_the_system_turn() -> None:
    text = DECLARED.render([{"role": "system", "content": "Be brief."}, *HI], [TOOL])
    system, rest = text.split("<|im_end|>\n", 1)
    printed = '{"type": "function", "function": {"name": "f", "description": "d<é>", "parameters": {"b": 1, "a": 2}}}'
    assert system.startswith("<|im_start|>system\nBe brief.\n\n# Tools\n")
    assert f"<tools>\n{printed}\n</tools>" in system
    assert rest == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"


def test_the_default_system_text_comes_before_tools_too() -> None:
    text = DECLARED.render(HI, [TOOL])
    assert text.startswith(
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face\n\n"
    )


def test_calls_and_results_are_printed_in_the_hermes_format() -> None:
    def call(name: str, arguments: str) -> dict[str, Any]:
        return {"function": {"name": name, "arguments": arguments}}

    shown: list[dict[str, Any]] = [
        *HI,
        {"role": "assistant", "content": "See.", "tool_calls": [call("f", '{"x": 1}'), call("g", "{}")]},
        {"role": "tool", "content": "42"},
        {"role": "tool", "content": ""},
        {"role": "assistant", "content": "", "tool_calls": [call("f", "{}")]},
    ]
    assert DECLARED.render(shown, None, generation=False).split("hi<|im_end|>\n")[1] == (
        '<|im_start|>assistant\nSee.\n<tool_call>\n{"name": "f", "arguments": {"x": 1}}\n</tool_call>\n'
        '<tool_call>\n{"name": "g", "arguments": {}}\n</tool_call><|im_end|>\n'
        "<|im_start|>user\n<tool_response>\n42\n</tool_response><|im_end|>\n"
        "<|im_start|>user\n<tool_response>\n\n</tool_response><|im_end|>\n"
        '<|im_start|>assistant\n<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call><|im_end|>\n'
    )


def test_what_a_template_brings_is_found_by_asking_it() -> None:
    assert OWN.default_system == "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
    assert OWN.generation_prompt == "<|im_start|>assistant\n"
    assert ChatTemplate("t", "{{ messages[0].content }}").default_system is None


@pytest.mark.parametrize(
    "source",
    [
        "{{ raise_exception('roles must alternate') }}",
        "{{ messages[0].content + 5 }}",
        "{{ messages[7].content.x }}",
        "{{ messages[0].__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ 1 // 0 }}",
        "{{ strftime_now('%d %b') }}",
        "{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}",
    ],
)
def test_a_template_that_cannot_print_the_messages_is_the_requests_error(source: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        ChatTemplate("t", source).render(HI, None)
    assert caught.value.param == "messages"


def test_a_template_says_why_it_refuses() -> None:
    with pytest.raises(BadRequestError, match="roles must alternate"):
        ChatTemplate("t", "{{ raise_exception('roles must alternate') }}").render(HI, None)


@pytest.mark.parametrize(
    "source",
    ["{% if %}", "{% for a in b %}" * 30 + "{% endfor %}" * 30, "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}"],
    ids=["half a statement", "too many blocks", "too deep"],
)
def test_a_template_that_does_not_compile_is_the_operators_error(source: str) -> None:
    with pytest.raises(ValueError, match="does not compile"):
        ChatTemplate("t", source)


def test_a_model_that_cannot_print_a_message_is_the_operators_error() -> None:
    with pytest.raises(ValueError, match="prints no messages"):
        choose("", ["<s>"])


def test_tojson_is_as_models_were_trained_on() -> None:
    template = ChatTemplate("t", "{{ tools | tojson }}|{{ tools | tojson(indent=1) }}")
    assert (
        template.render([], [{"b": "<é&'", "a": 1}])
        == '[{"b": "<é&\'", "a": 1}]|[\n {\n  "b": "<é&\'",\n  "a": 1\n }\n]'
    )
