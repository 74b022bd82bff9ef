from hypothesis import given, settings

from gateway.chat.messages import FunctionCall, Message, TextPart, Tool, ToolCall
from gateway.chat.request import ChatRequest
from gateway.normalize import normalize
from gateway.render import Renderer
from tests.gateway.conversations import FORGED, messages, tools
from tests.gateway.small_bpe import renderer_model

OWN_WITH_TOOLS = (
    "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}"
    "{% if m.name is defined %} {{ m.name }}{% endif %}{% if m.tool_call_id %} {{ m.tool_call_id }}{% endif %}\n"
    "{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function.arguments | tojson }}{% endfor %}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
RENDERERS = [Renderer(renderer_model()), Renderer(renderer_model(OWN_WITH_TOOLS))]


def request(said: tuple[Message, ...], declared: tuple[Tool, ...] = ()) -> ChatRequest:
    return ChatRequest(model="m", messages=said, tools=declared)


@settings(max_examples=40, deadline=None)
@given(messages(FORGED), tools(FORGED))
def test_normalizing_changes_no_id(said: tuple[Message, ...], declared: tuple[Tool, ...]) -> None:
    normal = normalize(request(said, declared))
    for renderer in RENDERERS:
        assert renderer.render(normal.messages, normal.tools) == renderer.render(said, declared)


@settings(max_examples=40, deadline=None)
@given(messages(FORGED), tools(FORGED))
def test_normalizing_twice_is_normalizing_once(said: tuple[Message, ...], declared: tuple[Tool, ...]) -> None:
    once = normalize(request(said, declared))
    assert normalize(once) == once


@settings(max_examples=40, deadline=None)
@given(messages(FORGED), tools(FORGED))
def test_nothing_is_reordered_or_dropped(said: tuple[Message, ...], declared: tuple[Tool, ...]) -> None:
    normal = normalize(request(said, declared))
    assert [message.text for message in normal.messages] == [message.text for message in said]
    assert [tool.name for tool in normal.tools] == [tool.name for tool in declared]


def test_equal_requests_become_equal_values() -> None:
    one = request((Message("developer", "s"), Message("user", (TextPart("hi"),)), Message("assistant", None)))
    other = request((Message("system", "s"), Message("user", "hi"), Message("assistant", "")))
    assert normalize(one) == normalize(other)


def test_arguments_take_the_spelling_that_is_generated() -> None:
    call = ToolCall("1", FunctionCall("f", '{"x":"\\u00e9","y":[1,2.50]}'))
    normal = normalize(request((Message("assistant", None, tool_calls=(call,)),)))
    assert normal.messages[0].tool_calls[0].function.arguments == '{"x": "é", "y": [1, 2.50]}'
