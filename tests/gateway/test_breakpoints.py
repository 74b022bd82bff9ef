"""A breakpoint of the client's in the tokens of its prompt."""

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.breakpoints import tokens_until
from gateway.chat.caching import Breakpoint
from gateway.chat.messages import Message
from gateway.chat.request import ChatRequest
from gateway.normalize import normalize
from gateway.render import Renderer
from tests.gateway.conversations import messages
from tests.gateway.small_bpe import renderer_model

RENDERER = Renderer(renderer_model())
SAID = (
    Message("system", "You keep the books of a salt road."),
    Message("user", "A long book. And a question?"),
    Message("user", "Go on."),
)


def until(said: tuple[Message, ...], message: int, characters: int) -> str:
    """What of the prompt is before the breakpoint."""
    request = ChatRequest(model="m", messages=said)
    tokens = RENDERER.render(said).tokens
    count = tokens_until(Breakpoint(message, characters), request, tokens, RENDERER, "acme")
    return b"".join(map(RENDERER.token_bytes, tokens[:count])).decode("utf-8", "replace")


def test_the_end_of_a_message_and_of_a_part_of_one() -> None:
    system = "<|im_start|>system\nYou keep the books of a salt road.<|im_end|>\n"
    assert until(SAID, 0, len(SAID[0].text)).startswith(system)
    assert len(until(SAID, 0, len(SAID[0].text))) <= len(system + "<|im_start|>")
    part = until(SAID, 1, len("A long book."))
    assert part.startswith(system + "<|im_start|>user\nA long")
    assert "question" not in part


@given(messages(st.text(max_size=20)))
@settings(deadline=None)
def test_what_is_kept_is_a_beginning_that_grows_with_the_breakpoint(said: tuple[Message, ...]) -> None:
    request = normalize(ChatRequest(model="m", messages=said))
    tokens = RENDERER.render(request.messages).tokens
    counts = [
        tokens_until(Breakpoint(index, len(message.text)), request, tokens, RENDERER, "acme")
        for index, message in enumerate(request.messages)
    ]
    assert all(0 <= count <= len(tokens) for count in counts)
    assert counts == sorted(counts)
