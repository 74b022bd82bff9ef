"""Where a tokenizer takes text as if a space came before it, as those of SentencePiece's kind do.

source   the normalizer "Prepend" and the pre-tokenizers "Metaspace" and "ByteLevel" of the tokenizers library
"""

from collections.abc import Iterator
from enum import Enum, auto
from typing import Any


class Follows(Enum):
    """What a piece of text comes after."""

    NOTHING = auto()
    CONTROL = auto()
    TEXT = auto()


def spaced_after(described: dict[str, Any]) -> frozenset[Follows]:
    """Behind what a tokenizer (its tokenizer.json) puts that space: nothing, the start, or every control token too."""
    schemes = {_scheme(part) for part in _parts(described)}
    if "always" in schemes:
        return frozenset({Follows.NOTHING, Follows.CONTROL})
    return frozenset({Follows.NOTHING} if "first" in schemes else ())


def unspaced(described: dict[str, Any]) -> dict[str, Any]:
    """The same tokenizer without that space anywhere."""
    changed = {key: _without(described.get(key)) for key in ("normalizer", "pre_tokenizer")}
    return described | changed


def _scheme(part: dict[str, Any]) -> str:
    if part.get("type") == "Prepend":
        return "always"
    if part.get("type") == "Metaspace" and "prepend_scheme" in part:
        return str(part["prepend_scheme"])
    return "always" if part.get("add_prefix_space") else "never"


def _parts(described: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for key in ("normalizer", "pre_tokenizer"):
        whole = described.get(key) or {}
        yield from whole.get("normalizers") or whole.get("pretokenizers") or [whole]


def _without(part: dict[str, Any] | None) -> dict[str, Any] | None:
    if part is None or part.get("type") == "Prepend":
        return None
    if part.get("type") == "Sequence":
        inner = "normalizers" if "normalizers" in part else "pretokenizers"
        return part | {inner: [kept for one in part[inner] if (kept := _without(one)) is not None]}
    never = {"prepend_scheme": "never"} if part.get("type") == "Metaspace" else {}
    spaceless = {"add_prefix_space": False} if "add_prefix_space" in part else {}
    return part | never | spaceless
