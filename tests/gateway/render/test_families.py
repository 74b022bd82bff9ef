"""The templates of the families that the worker runs, shortened: each prints here what transformers prints."""

from pathlib import Path
from typing import Any

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from gateway.chat.messages import Message
from gateway.errors import BadRequestError
from gateway.render import Renderer, RendererModel
from gateway.render.templates import ChatTemplate
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


@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_renders_with_the_template_of_its_family(family: str) -> None:
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"] if family == "qwen3" else ["<|endoftext|>"]
    model = RendererModel(tokenizer=tokenizer_json(), chat_template=FAMILIES[family], special_tokens=specials, eos_id=2)
    renderer = Renderer(model)
    asked = (Message("user", "hi"),)
    prompt = renderer.render(asked).tokens
    again = renderer.render((*asked, Message("assistant", "ho"), Message("user", "hi"))).tokens
    assert renderer.template_name == "own"
    if family == "qwen3":
        assert again[: len(prompt)] == prompt
    assert b"hi" in b"".join(map(renderer.token_bytes, prompt))
