"""Where the parts of a prompt lie in its tokens."""

import json
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings

from cacheplane.attribution import Part, Segment
from gateway.chat.messages import FunctionCall, Message, Tool, ToolCall
from gateway.render import Renderer, RendererModel
from gateway.render.outline import outline
from tests.gateway.conversations import FORGED, messages, tools
from tests.gateway.small_bpe import EOS, renderer_model

RENDERER = Renderer(renderer_model())
SYSTEM = Message("system", "You keep the books of a salt road.")
WEIGH = Tool("weigh", "Weigh a load.", {"type": "object", "properties": {"load": {"type": "string"}}})
PRICE = Tool("price", None, {"type": "object", "properties": {}})


def shown(renderer: Renderer, said: tuple[Message, ...], declared: tuple[Tool, ...] = ()) -> list[tuple[Part, str]]:
    """Each part with the text of its tokens."""
    rendered = renderer.render(said, declared)
    return [(segment.part, text_of(renderer, rendered.tokens, segment)) for segment in rendered.segments]


def text_of(renderer: Renderer, tokens: Sequence[int], segment: Segment) -> str:
    mine = tokens[segment.start : segment.start + segment.tokens]
    return b"".join(map(renderer.token_bytes, mine)).decode("utf-8", "replace")


def test_the_declared_template_in_its_parts() -> None:
    call = ToolCall("1", FunctionCall("weigh", '{"load": "salt"}'))
    said = (SYSTEM, Message("user", "Weigh it."), Message("assistant", None, tool_calls=(call,)), Message("tool", "42"))
    parts = shown(RENDERER, said, (WEIGH, PRICE))
    assert [part for part, _ in parts] == [
        *(Part.SYSTEM, Part.FRAME, Part.TOOLS, Part.TOOLS, Part.FRAME),
        *(Part.HISTORY, Part.HISTORY, Part.HISTORY),
    ]
    texts = [text for _, text in parts]
    assert texts[0] == "<|im_start|>system\nYou keep the books of a salt road."
    assert texts[1].startswith("\n\n# Tools")
    assert json.loads(texts[2])["function"]["name"] == "weigh"
    assert json.loads(texts[3])["function"]["name"] == "price"
    assert texts[4].endswith("answer in plain text.<|im_end|>\n")
    assert texts[5] == "<|im_start|>user\nWeigh it.<|im_end|>\n"
    assert '"arguments": {"load": "salt"}' in texts[6]
    assert texts[7] == "<|im_start|>user\n<tool_response>\n42\n</tool_response><|im_end|>\n"


def test_the_system_prompt_ends_where_the_history_begins() -> None:
    said = (SYSTEM, Message("user", "Weigh it."))
    for rendered in (RENDERER.render(said), RENDERER.render(said, (WEIGH, PRICE)), RENDERER.render(said[1:])):
        text = b"".join(map(RENDERER.token_bytes, rendered.tokens[rendered.system_tokens :])).decode()
        assert text == "<|im_start|>user\nWeigh it.<|im_end|>\n<|im_start|>assistant\n"


def test_a_tool_is_compared_without_what_stands_between_tools() -> None:
    first = RENDERER.render((SYSTEM, Message("user", "hi")), (WEIGH, PRICE)).segments
    other = RENDERER.render((SYSTEM, Message("user", "hi")), (PRICE, WEIGH)).segments
    tools_of = [{s.name: s.text for s in segments if s.part is Part.TOOLS} for segments in (first, other)]
    assert tools_of[0] == tools_of[1]
    assert set(tools_of[0]) == {"weigh", "price"}


def test_what_the_template_says_for_a_client_that_says_nothing_is_its_own() -> None:
    parts = shown(RENDERER, (Message("user", "hi"),))
    assert [part for part, _ in parts] == [Part.FRAME, Part.HISTORY]


def test_a_tool_that_is_quoted_in_the_system_prompt_is_no_tool_there() -> None:
    (quoted,) = [s.text for s in RENDERER.render((SYSTEM,), (PRICE,)).segments if s.part is Part.TOOLS]
    parts = shown(RENDERER, (Message("system", f"Use {quoted} well."),), (PRICE,))
    assert [part for part, _ in parts] == [Part.SYSTEM, Part.FRAME, Part.TOOLS, Part.FRAME]


def test_a_later_system_message_is_history() -> None:
    parts = shown(RENDERER, (SYSTEM, Message("user", "hi"), Message("system", "Be brief.")))
    assert [part for part, _ in parts] == [Part.SYSTEM, Part.FRAME, Part.HISTORY, Part.HISTORY]


def test_a_stranger_of_a_template_is_one_stretch_of_history() -> None:
    model = renderer_model()
    stranger = RendererModel(
        tokenizer=model.tokenizer,
        chat_template="{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}",
        special_tokens=["<|endoftext|>"],
        eos_id=EOS,
    )
    assert shown(Renderer(stranger), (SYSTEM, Message("user", "hi"))) == [
        (Part.HISTORY, "[system] You keep the books of a salt road.\n[user] hi\n")
    ]


def test_a_template_that_prints_tools_its_own_way_keeps_them_in_the_system_part() -> None:
    own_way = (
        "<|im_start|>system\n{% for t in tools or [] %}{{ t.function.name }} {% endfor %}{{ messages[0].content }}"
        "<|im_end|>\n{% for m in messages[1:] %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    renderer = Renderer(renderer_model(own_way))
    assert renderer.template_name == "own"
    parts = shown(renderer, (SYSTEM, Message("user", "hi")), (WEIGH, PRICE))
    assert [part for part, _ in parts] == [Part.SYSTEM, Part.FRAME, Part.HISTORY]
    assert "weigh price" in parts[0][1]


@settings(max_examples=60, deadline=None)
@given(messages(FORGED), tools(FORGED))
def test_the_parts_follow_each_other_without_a_gap(said: tuple[Message, ...], declared: tuple[Tool, ...]) -> None:
    rendered = RENDERER.render(said, declared)
    bounds = [segment.start for segment in rendered.segments]
    assert bounds[0] == 0
    assert all(a.start + a.tokens == b.start for a, b in pairwise(rendered.segments))
    last = rendered.segments[-1]
    opening = len(rendered.tokens) - last.start - last.tokens
    assert opening == len(RENDERER.render((Message("user", ""),)).tokens) - len(
        [t for s in RENDERER.render((Message("user", ""),)).segments for t in range(s.tokens)]
    )
    assert sum(segment.part is Part.TOOLS for segment in rendered.segments) == len(declared)


@settings(max_examples=60, deadline=None)
@given(messages(FORGED), tools(FORGED))
def test_the_history_is_exact_to_the_token(said: tuple[Message, ...], declared: tuple[Tool, ...]) -> None:
    rendered = RENDERER.render(said, declared)
    for segment in rendered.segments:
        if segment.part is Part.HISTORY:
            assert segment.text.encode("utf-8", "replace").decode() == text_of(RENDERER, rendered.tokens, segment)


@pytest.mark.parametrize("text", ["", "<|im_start|>", "<|im_start|>system", "<|im_start|>assistant\n"])
def test_an_outline_of_anything_is_an_outline(text: str) -> None:
    stretches = outline(text, "<|im_start|>", "<|im_start|>assistant\n", "x", [])
    assert all(a.end == b.start for a, b in pairwise(stretches))
