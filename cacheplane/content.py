"""What the blocks of an engine hold, read from its events where its own hashes are of no use to us."""

from functools import partial
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from cacheplane.wire import MAX_HASHES, Content, decode_batch

MAX_TOKENS: Final = 1 << 20  # per event

_Token = Annotated[int, Meta(ge=0, lt=1 << 32)]
_TOKENS: Final = msgspec.msgpack.Decoder(Annotated[list[_Token], Meta(max_length=MAX_TOKENS)])
_EXTRA: Final = msgspec.msgpack.Decoder(Annotated[list[list[Any] | None], Meta(max_length=MAX_HASHES)] | None)


def read_content(tokens: bytes, extra: bytes, lora: str | None) -> Content | None:
    """Fields of a stored event, still encoded, empty where it has none.

    None when the tokens are no token ids: SGLang publishes pairs of them for models that draft (EAGLE). Such blocks
    cannot be named, and are no reason to distrust the stream.
    """
    try:
        return Content(_TOKENS.decode(tokens) if tokens else [], _EXTRA.decode(extra) or [] if extra else [], lora)
    except msgspec.ValidationError:
        return None


decode_engine_batch = partial(decode_batch, content=read_content)
