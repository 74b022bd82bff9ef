"""Text to ids, and ids back to the bytes they stand for."""

import re
import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

import msgspec
from tokenizers import Tokenizer

from cacheplane.identity import token_words
from gateway.bounded import BoundedCache
from gateway.render.prefix import Follows, spaced_after, unspaced

CACHE_BYTES = 64 * 1024 * 1024
ENTRY_BYTES = 384
"""What an entry of the cache takes beside its text and its ids: tuples, integers and its place in a table."""
MARK_BYTES = 44
"""A mark in the key, a pointer and an integer, and the token that it is at."""


class Tokens:
    """A model's tokenizer.

    Rendered text is cut at its control tokens, and each piece is encoded on its own and remembered. The cut changes no
    id: a tokenizer does not merge across a control token either, and a space that it imagines before text is put where
    it would put it in the whole.
    """

    def __init__(self, tokenizer_json: str, special_tokens: list[str], cache_bytes: int = CACHE_BYTES) -> None:
        described = msgspec.json.decode(tokenizer_json)
        self._tokenizer = _text_only(Tokenizer.from_str(tokenizer_json))
        self._spaced_after = spaced_after(described)
        self._unspaced = self._tokenizer
        if self._spaced_after:
            self._unspaced = _text_only(Tokenizer.from_str(msgspec.json.encode(unspaced(described)).decode()))
        added = self._tokenizer.get_added_tokens_decoder()
        self._added = {token: found.content.encode() for token, found in added.items()}
        self._specials = {text: token for text in special_tokens if (token := self._id_of(text)) is not None}
        self._byte_level = _is_byte_level(described)
        self._cache: BoundedCache[array[int]] = BoundedCache(cache_bytes)
        size = max(self._tokenizer.get_vocab().values(), default=-1) + 1
        self._lengths = [len(self.bytes_of(token)) for token in range(size)]
        # Text that is composed on its way, or spelled by other signs, may be longer than what its tokens stand for.
        self._longest = max(self._lengths, default=0) if self._byte_level and not described.get("normalizer") else 0
        longest_first = sorted(self._specials, key=len, reverse=True)
        self.controls = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")

    def _id_of(self, text: str) -> int | None:
        token: int | None = self._tokenizer.token_to_id(text)
        return token

    def least(self, characters: int) -> int:
        """Tokens that a text of so many characters takes at least, as far as the tokenizer lets us tell: 0 is safe."""
        return characters // self._longest if self._longest else 0

    def control(self, text: str) -> int:
        """The id of a control token."""
        return self._specials[text]

    def encode(self, piece: str, partition: str = "", follows: Follows = Follows.CONTROL) -> "array[int]":
        """Ids of text without control tokens, as 32-bit words. The array is shared: do not change it."""
        spaced = follows in self._spaced_after
        known = self._cache.get(partition, (piece, spaced))
        if known is None:
            tokenizer = self._tokenizer if spaced else self._unspaced
            known = token_words(tokenizer.encode(piece, add_special_tokens=False).ids)
            self._cache.put(partition, (piece, spaced), known, _bytes(piece, sys.getsizeof(known)))
        return known

    def places(
        self, piece: str, marks: Sequence[int], partition: str = "", follows: Follows = Follows.CONTROL
    ) -> "array[int]":
        """For characters of a piece, in order, which of its tokens is the first that begins there or behind.

        A tokenizer that changes text (other spaces, a sign for the unknown) has no such places: then all are 0.
        """
        spaced = follows in self._spaced_after
        known = self._cache.get(partition, (piece, spaced, *marks))
        if known is None:
            known = self._places(piece, marks, self.encode(piece, partition, follows), int(spaced))
            self._cache.put(partition, (piece, spaced, *marks), known, _bytes(piece, MARK_BYTES * len(known)))
        return known

    def _places(self, piece: str, marks: Sequence[int], ids: "array[int]", space: int) -> "array[int]":
        """space   1 where the tokens begin with a space that the piece does not have"""
        starts = list(accumulate((self._lengths[token] for token in ids), initial=-space))
        if starts[-1] != len(piece.encode("utf-8", "surrogatepass")):
            return array("I", bytes(4 * len(marks)))
        bounds = [0, *marks]
        sizes = [len(piece[a:b].encode("utf-8", "surrogatepass")) for a, b in zip(bounds, marks, strict=False)]
        return array("I", [bisect_left(starts, offset) if offset else 0 for offset in accumulate(sizes)])

    def bytes_of(self, token: int) -> bytes:
        """The bytes that `token` stands for: part of a character, perhaps; empty for an id outside the vocabulary."""
        text: str | None = self._tokenizer.id_to_token(token)
        if text is None:
            return b""
        if token in self._added:
            return self._added[token]
        if not self._byte_level:
            byte = _BYTE_NAME.fullmatch(text)
            return bytes([int(byte[1], 16)]) if byte else text.replace("\u2581", " ").encode()
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


def _bytes(piece: str, value: int) -> int:
    """Of an entry of the cache; a text of other letters than ASCII may hold its UTF-8 too, once that was asked for."""
    return sys.getsizeof(piece) + value + ENTRY_BYTES


def _text_only(tokenizer: Tokenizer) -> Tokenizer:
    """In a piece, the spelling of a control token is ordinary text."""
    tokenizer.encode_special_tokens = True
    return tokenizer


def _is_byte_level(described: dict[str, Any]) -> bool:
    decoder = described.get("decoder") or {}
    return any(part.get("type") == "ByteLevel" for part in [decoder, *decoder.get("decoders", [])])


def _byte_letters() -> dict[str, int]:
    """GPT-2's letters for bytes: printable ones are themselves, the others follow from U+0100 on."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    return {chr(byte): byte for byte in printable} | {chr(256 + rank): byte for rank, byte in enumerate(others)}


_BYTE_OF = _byte_letters()
_BYTE_NAME = re.compile(r"<0x([0-9A-F]{2})>")
"""How a SentencePiece vocabulary spells a byte that no piece covers."""
