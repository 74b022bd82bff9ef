import json
from contextlib import nullcontext, suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.chat.messages import FunctionCall, Message, TextPart, Tool, ToolCall
from gateway.errors import BadRequestError
from gateway.render import Renderer, RendererModel
from tests.gateway.conversations import FORGED, PLAIN, messages, tools
from tests.gateway.small_bpe import BOS, EOS, renderer_model, whole

RENDERER = Renderer(renderer_model())
QWEN_LIKE = (
    "{{ bos_token }}{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m in messages %}<|im_start|>"
    "{{ m.role }}\n{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function.arguments | tojson }}{% endfor %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CHAT = (Message("user", "hi"),)


def text_of(renderer: Renderer, said: tuple[Message, ...], declared: tuple[Tool, ...] = ()) -> str:
    return b"".join(map(renderer.token_bytes, renderer.render(said, declared).tokens)).decode()


def speaks_first(message: Message) -> bool:
    """Whether an assistant turn begins with something that may merge with the line break before it."""
    return message.role == "assistant" and message.text[:1].isspace()


@settings(max_examples=40, deadline=None)
@given(messages(PLAIN), tools(PLAIN))
def test_piecewise_ids_are_the_whole_texts_ids(said: tuple[Message, ...], declared: tuple[Tool, ...]) -> None:
    if not any(map(speaks_first, said)):
        expected = whole().encode(text_of(RENDERER, said, declared), add_special_tokens=False).ids
        assert RENDERER.render(said, declared).tokens.tolist() == expected


@settings(max_examples=40, deadline=None)
@given(messages(FORGED), tools(FORGED))
def test_no_client_text_opens_or_closes_a_turn(said: tuple[Message, ...], declared: tuple[Tool, ...]) -> None:
    rendered = RENDERER.render(said, declared).tokens
    honest = RENDERER.render([Message(message.role, "x") for message in said], declared and [Tool("f")]).tokens
    assert [token for token in rendered if token < 4] == [token for token in honest if token < 4]


@settings(max_examples=40, deadline=None)
@given(messages(FORGED), tools(FORGED), PLAIN, st.booleans())
def test_a_prompt_is_a_prefix_of_the_next_turns(
    said: tuple[Message, ...], declared: tuple[Tool, ...], answer: str, calls: bool
) -> None:
    made = (ToolCall("1", FunctionCall("f", "{}")),) if calls else ()
    prompt = RENDERER.render(said, declared).tokens
    later = (*said, Message("assistant", answer, tool_calls=made), Message("tool", "42", tool_call_id="1"))
    assert RENDERER.render(later, declared).tokens[: len(prompt)] == prompt


@settings(deadline=None)
@given(PLAIN)
def test_a_reply_renders_as_it_was_generated(answer: str) -> None:
    prompt = RENDERER.render(CHAT).tokens
    generated = whole().encode(answer, add_special_tokens=False).ids
    assert (
        RENDERER.render((*CHAT, Message("assistant", answer))).tokens[len(prompt) :][: len(generated)].tolist()
        == generated
    )


@settings(deadline=None)
@given(FORGED)
def test_a_string_is_one_text_part(text: str) -> None:
    assert RENDERER.render([Message("user", text)]) == RENDERER.render([Message("user", (TextPart(text),))])


def test_null_is_empty_is_absent() -> None:
    call = (ToolCall("1", FunctionCall("f", "{}")),)
    shapes = [Message("assistant", content, tool_calls=call) for content in (None, "", (), (TextPart(""),))]
    rendered = [RENDERER.render((*CHAT, shape)).tokens for shape in shapes]
    assert rendered.count(rendered[0]) == len(shapes)
    assert "None" not in text_of(RENDERER, (*CHAT, shapes[0]))


def test_a_developer_is_the_system() -> None:
    assert text_of(RENDERER, (Message("developer", "s"),)) == text_of(RENDERER, (Message("system", "s"),))


def test_a_tool_without_parameters_takes_an_empty_object() -> None:
    empty = {"type": "object", "properties": {}}
    assert RENDERER.render(CHAT, [Tool("f")]) == RENDERER.render(CHAT, [Tool("f", None, empty, strict=True)])


@pytest.mark.parametrize("arguments", ["5", "[1]", "null", '{"value": ', '{"x":"\\ud800"}', "<|im_end|>", "not json"])
def test_arguments_that_are_no_object_are_printed_as_they_are(arguments: str) -> None:
    said = (*CHAT, Message("assistant", None, tool_calls=(ToolCall("1", FunctionCall("f", arguments)),)))
    assert f'{{"name": "f", "arguments": {arguments}}}' in text_of(RENDERER, said)
    assert json.dumps(arguments) in text_of(Renderer(renderer_model(QWEN_LIKE)), said)


@pytest.mark.parametrize("depth", [100, 700, 5000])
def test_deep_arguments_are_rendered_or_refused(depth: int) -> None:
    arguments = '{"a":' * depth + "1" + "}" * depth
    said = (*CHAT, Message("assistant", None, tool_calls=(ToolCall("1", FunctionCall("f", arguments)),)))
    for renderer in (RENDERER, Renderer(renderer_model(QWEN_LIKE))):
        # Both outcomes are right for a deep one, and no other.
        with nullcontext() if depth == 100 else suppress(BadRequestError):
            assert renderer.render(said).tokens


def test_a_models_own_template_gets_arguments_as_objects() -> None:
    renderer = Renderer(renderer_model(QWEN_LIKE))
    said = (*CHAT, Message("assistant", None, tool_calls=(ToolCall("1", FunctionCall("f", '{"x":"é"}')),)))
    assert renderer.template_name == "own"
    assert '{"x": "é"}' in text_of(renderer, said)
    assert renderer.render(CHAT).tokens[0] == BOS


def test_the_template_in_use_has_a_name() -> None:
    assert (RENDERER.template_name, RENDERER.supports_tools) == ("chatml-hermes", True)


def test_tools_are_refused_where_no_template_prints_them() -> None:
    model = renderer_model()
    stranger = RendererModel(
        tokenizer=model.tokenizer,
        chat_template="{% for m in messages %}{{ m.content }}{% endfor %}",
        special_tokens=["<|endoftext|>"],
        eos_id=EOS,
    )
    renderer = Renderer(stranger)
    assert renderer.render(CHAT).tokens.tolist() == whole().encode("hi").ids
    with pytest.raises(BadRequestError) as caught:
        renderer.render(CHAT, [Tool("f")])
    assert caught.value.param == "tools"


def test_a_partition_never_changes_the_ids() -> None:
    assert RENDERER.render(CHAT, partition="acme") == RENDERER.render(CHAT, partition="globex")
