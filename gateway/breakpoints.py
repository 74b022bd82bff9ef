"""Where a breakpoint of the client's lies in the rendered prompt."""

from array import array

from msgspec.structs import replace

from gateway.chat.caching import Breakpoint
from gateway.chat.request import ChatRequest
from gateway.errors import BadRequestError
from gateway.render import Renderer


def tokens_until(mark: Breakpoint, request: ChatRequest, tokens: "array[int]", renderer: Renderer, tenant: str) -> int:
    """Tokens of the prompt up to the end of the part that is marked: what it has in common with the prompt of a
    conversation that ends there. All of them where the template cannot show such a one.

    request   normalized; `tokens` is its prompt
    """
    *earlier, marked = request.messages[: mark.message + 1]
    cut = replace(marked, content=marked.text[: mark.characters])
    try:
        shorter = renderer.render((*earlier, cut), request.tools, partition=tenant).tokens
    except BadRequestError:
        return len(tokens)
    pairs = enumerate(zip(tokens, shorter, strict=False))
    return next((index for index, (one, other) in pairs if one != other), min(len(tokens), len(shorter)))
