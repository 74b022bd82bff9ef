"""The templates of the families that the worker runs, shortened: each prints here what transformers prints."""

import re
from pathlib import Path
from typing import Any

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from gateway.chat.messages import FunctionCall, Message, ToolCall
from gateway.errors import BadRequestError
from gateway.render import Renderer, RendererModel
from gateway.render.templates import ChatTemplate
from gateway.tools.hermes import new_call_id
from tests.gateway.small_bpe import tokenizer_json

FAMILIES = {path.stem: path.read_text("utf-8") for path in sorted(Path(__file__).with_name("families").glob("*.jinja"))}
VARIABLES = {"bos_token": "<s>", "eos_token": "</s>"}
TOOL = {
    "type": "function",
    "function": {"name": "f", "description": "d<é>", "parameters": {"type": "object", "properties": {"x": {}}}},
}
ASKED: list[dict[str, Any]] = [{"role": "user", "content": " What is <salt>? "}]
CALL = {"id": "abcdefghi", "type": "function", "function": {"name": "f", "arguments": {"x": "é\n"}}}
CONVERSATIONS: dict[str, list[dict[str, Any]]] = {
    "a question": ASKED,
    "a system text": [{"role": "system", "content": "Be brief."}, *ASKED],
    "an answer": [*ASKED, {"role": "assistant", "content": "<think>\nhm\n</think>\n\nA mineral.\n"}, *ASKED],
    "a call and its result": [
        *ASKED,
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "content": "42", "tool_call_id": "abcdefghi"},
    ],
    "two results in a row, an answer and a question": [
        *ASKED,
        {"role": "assistant", "content": "Let me see.", "tool_calls": [CALL]},
        {"role": "tool", "content": "42", "tool_call_id": "abcdefghi"},
        {"role": "tool", "content": "and <tool_response>", "tool_call_id": "abcdefghi"},
        {"role": "assistant", "content": "A mineral."},
        *ASKED,
    ],
}


@pytest.mark.parametrize("tools", [None, [TOOL]], ids=["plain", "tools"])
@pytest.mark.parametrize("said", CONVERSATIONS)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_familys_template_prints_what_transformers_prints(
    family: str, said: str, tools: list[dict[str, Any]] | None
) -> None:
    dated = {"date_string": "26 Jul 2024"}
    by_transformers: Any = render_jinja_template
    ((theirs,), _) = by_transformers(
        [CONVERSATIONS[said]],
        tools=tools,
        chat_template=FAMILIES[family],
        add_generation_prompt=True,
        **VARIABLES | dated,
    )
    assert ChatTemplate("own", FAMILIES[family], **VARIABLES).render(CONVERSATIONS[said], tools) == theirs


@pytest.mark.parametrize(
    ("family", "opening"),
    [
        ("llama3", "<|start_header_id|>assistant<|end_header_id|>\n\n"),
        ("mistral", ""),
        ("qwen2.5", "<|im_start|>assistant\n"),
        ("qwen3", "<|im_start|>assistant\n"),
    ],
)
def test_the_opening_of_a_turn_is_found_by_asking(family: str, opening: str) -> None:
    template = ChatTemplate("own", FAMILIES[family], **VARIABLES)
    assert template.generation_prompt == opening
    assert template.prints_tools


def test_a_template_that_asks_for_the_time_prints_its_own_date() -> None:
    source = FAMILIES["llama3"].replace("{{- system_message }}", '{{- "Today: " + date_string }}')
    assert "Today: 26 Jul 2024" in ChatTemplate("own", source, **VARIABLES).render(ASKED, None)


def test_a_familys_own_rules_are_the_requests_error() -> None:
    with pytest.raises(BadRequestError, match="must alternate"):
        ChatTemplate("own", FAMILIES["mistral"], **VARIABLES).render([*ASKED, *ASKED], None)
    two = [*ASKED, {"role": "assistant", "content": "", "tool_calls": [CALL, CALL]}]
    with pytest.raises(BadRequestError, match="single tool-calls"):
        ChatTemplate("own", FAMILIES["llama3"], **VARIABLES).render(two, None)


def test_the_system_text_that_a_template_brings_is_known() -> None:
    assert ChatTemplate("own", FAMILIES["qwen2.5"]).default_system == "You are a helpful assistant."


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_that_wants_ids_of_nine_letters_gets_them(family: str) -> None:
    """Those of OpenAI's clients and our own are longer; a call and its result stay together, and others apart."""
    model = RendererModel(tokenizer=tokenizer_json(), chat_template=FAMILIES[family], special_tokens=[], eos_id=2)
    renderer, (ours, theirs) = Renderer(model), (new_call_id(), "toolu_1")

    def printed(call: str, result: str) -> str:
        said = [
            Message("user", "hi"),
            Message("assistant", tool_calls=(ToolCall(id=call, function=FunctionCall("f", "{}")),)),
            Message("tool", "42", tool_call_id=result),
        ]
        return b"".join(map(renderer.token_bytes, renderer.render(said).tokens)).decode()

    named = re.findall('"(?:id|call_id)": "([a-zA-Z0-9]{9})"', printed(ours, ours))
    other = re.findall('"(?:id|call_id)": "([a-zA-Z0-9]{9})"', printed(theirs, "abcdefghi"))
    assert len(set(named)) == (1 if family == "mistral" else 0)
    assert len({*named, *other}) == (3 if family == "mistral" else 0)
    assert ("abcdefghi" in other) == (family == "mistral")


@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_renders_with_the_template_of_its_family(family: str) -> None:
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"] if "qwen" in family else ["<|endoftext|>"]
    model = RendererModel(tokenizer=tokenizer_json(), chat_template=FAMILIES[family], special_tokens=specials, eos_id=2)
    renderer = Renderer(model)
    asked = (Message("user", "hi"),)
    prompt = renderer.render(asked).tokens
    again = renderer.render((*asked, Message("assistant", "ho"), Message("user", "hi"))).tokens
    assert renderer.template_name == "own"
    if "qwen" in family:
        assert again[: len(prompt)] == prompt
    assert b"hi" in b"".join(map(renderer.token_bytes, prompt))
