"""Text to ids, and ids back to the bytes they stand for."""

import re
from collections.abc import Iterator

import msgspec
from tokenizers import Tokenizer

from gateway.bounded import BoundedCache

CACHE_BYTES = 64 * 1024 * 1024
BYTES_PER_TOKEN = 8
"""Of a cached list: one pointer each; small integers are shared, others are counted with the text."""


class Tokens:
    """A model's tokenizer.

    Rendered text is cut at its control tokens, and each piece is encoded on its own and remembered. The cut changes no
    id: a tokenizer does not merge across a control token either.
    """

    def __init__(self, tokenizer_json: str, special_tokens: list[str], cache_bytes: int = CACHE_BYTES) -> None:
        self._tokenizer = Tokenizer.from_str(tokenizer_json)
        # In a piece, the spelling of a control token is ordinary text.
        self._tokenizer.encode_special_tokens = True
        self._specials = {text: token for text in special_tokens if (token := self._id_of(text)) is not None}
        self._byte_level = _is_byte_level(tokenizer_json)
        self._cache: BoundedCache[list[int]] = BoundedCache(cache_bytes)
        longest_first = sorted(self._specials, key=len, reverse=True)
        self.controls = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")

    def _id_of(self, text: str) -> int | None:
        token: int | None = self._tokenizer.token_to_id(text)
        return token

    def control(self, text: str) -> int:
        """The id of a control token."""
        return self._specials[text]

    def encode(self, piece: str, partition: str = "") -> list[int]:
        """Ids of text without control tokens. The list is shared: do not change it."""
        known = self._cache.get(partition, piece)
        if known is None:
            known = list(self._tokenizer.encode(piece, add_special_tokens=False).ids)
            self._cache.put(partition, piece, known, 2 * len(piece) + 2 * BYTES_PER_TOKEN * len(known) + 256)
        return known

    def bytes_of(self, token: int) -> bytes:
        """The bytes that `token` stands for: part of a character, perhaps; empty for an id outside the vocabulary."""
        text: str | None = self._tokenizer.id_to_token(token)
        if text is None:
            return b""
        if text in self._specials or not self._byte_level:
            return text.replace("\u2581", " ").encode()
        return bytes(_BYTE_OF.get(letter, ord("?")) for letter in text)

    def cut(self, text: str) -> Iterator[tuple[str, bool]]:
        """`text` in pieces, each with whether it is a control token; joined, they are `text`."""
        start = 0
        for match in self.controls.finditer(text):
            if match.start() > start:
                yield text[start : match.start()], False
            yield match[0], True
            start = match.end()
        if start < len(text):
            yield text[start:], False


def _is_byte_level(tokenizer_json: str) -> bool:
    decoder = msgspec.json.decode(tokenizer_json).get("decoder") or {}
    return any(part.get("type") == "ByteLevel" for part in [decoder, *decoder.get("decoders", [])])


def _byte_letters() -> dict[str, int]:
    """GPT-2's letters for bytes: printable ones are themselves, the others follow from U+0100 on."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    return {chr(byte): byte for byte in printable} | {chr(256 + rank): byte for rank, byte in enumerate(others)}


_BYTE_OF = _byte_letters()
