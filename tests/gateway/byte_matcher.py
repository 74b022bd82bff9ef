"""llguidance without a model: every byte is a token."""

import random
from functools import cache

from llguidance import LLMatcher, LLTokenizer


@cache
def byte_tokenizer() -> LLTokenizer:
    return LLTokenizer("byte")


def matcher(grammar: str) -> LLMatcher:
    made = LLMatcher(byte_tokenizer(), grammar, log_level=0)
    assert not made.is_error(), made.get_error()
    return made


def accepts(grammar: str, text: str) -> bool:
    """Whether `text` is a complete output."""
    made, data = matcher(grammar), list(text.encode())
    return made.try_consume_tokens(data) == len(data) and made.is_accepting()


def admits_start(grammar: str, text: str) -> bool:
    """Whether some output begins with `text`."""
    data = list(text.encode())
    return matcher(grammar).validate_tokens(data) == len(data)


def walk(grammar: str, seed: int, most: int = 4000) -> str:
    """An output of a model that knows nothing: any allowed byte, seldom the end. Fails when it has not ended by itself
    within `most` bytes.
    """
    chance, made, written = random.Random(seed), matcher(grammar), bytearray()
    end = byte_tokenizer().eos_token
    while len(written) < most:
        mask = made.compute_bitmask()
        allowed = [token for token in range(len(mask) * 8) if mask[token >> 3] >> (token & 7) & 1]
        if allowed == [end] or (end in allowed and chance.random() < 0.2):
            return written.decode()
        # Half of the time ASCII, so that the walk also meets what it may close.
        narrow = [token for token in allowed if token < 128]
        token = chance.choice(narrow if narrow and chance.random() < 0.5 else [t for t in allowed if t != end])
        assert made.consume_token(token)
        written.append(token)
    raise AssertionError("the output does not end")
