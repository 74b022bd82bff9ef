"""From the spelling of a token in its vocabulary to the bytes that it stands for."""

import re

_BYTE_NAME = re.compile(r"<0x([0-9A-F]{2})>")


def byte_alphabet() -> dict[str, int]:
    """GPT-2's reversible spelling of bytes as printable characters: character -> byte."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + rank): byte for rank, byte in enumerate(others)}


_ALPHABET = byte_alphabet()


def byte_level(name: str) -> bytes | None:
    """Of a byte-level vocabulary; None when the name isn't spelled in its alphabet."""
    try:
        return bytes(_ALPHABET[character] for character in name)
    except KeyError:
        return None


def sentencepiece(name: str, space: str = "\u2581") -> bytes:
    """Of a SentencePiece vocabulary: spaces are spelled as a mark, and bytes that no piece covers as <0xE5>."""
    byte = _BYTE_NAME.fullmatch(name)
    return bytes([int(byte[1], 16)]) if byte else name.replace(space, " ").encode()
