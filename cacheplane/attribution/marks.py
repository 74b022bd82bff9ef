"""Marks of segments: keyed digests of a text in several forms. The text itself is kept nowhere."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import xxhash

from cacheplane.attribution.forms import masked, ordered, spaced
from cacheplane.attribution.reasons import Kind, Part

SHAPE: Final = 16  # numbers in a shape
ALIKE: Final = 0.5  # resemblance from which one text is held to be an edit of the other
MAX_WORDS: Final = 4096  # of a text that a shape is made from


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of the rendered prompt, as the renderer hands it over and nobody keeps it.

    start, tokens   in tokens of the prompt
    name            of a tool, else empty
    """

    part: Part
    text: str
    start: int
    tokens: int
    name: str = ""


@dataclass(frozen=True, slots=True)
class Mark:
    """64-bit digests of one segment's text, each form coarser than the one before, under a key of the tenant's own.

    exact   of this process alone
    loose   equal for texts that differ in spacing, order of keys and volatile values only
    name    digest of a tool's name, 0 for others
    shape   of a system prompt: the smallest hashes of its pairs of words, for `resemblance`
    """

    part: Part
    exact: int
    spaced: int
    ordered: int
    loose: int
    name: int = 0
    shape: tuple[int, ...] = ()

    def change(self, other: "Mark") -> Kind | None:
        """The kind of the difference between two marks that are equal loosely; None when they are equal exactly."""
        if self.exact == other.exact:
            return None
        if self.spaced == other.spaced:
            return Kind.WHITESPACE
        return Kind.KEY_ORDER if self.ordered == other.ordered else Kind.VOLATILE

    def resemblance(self, other: "Mark") -> float:
        """Roughly which share of their pairs of words two system prompts have in common, 0 to 1.

        source   bottom-k sketch: Broder, On the resemblance and containment of documents, 1997
        """
        union = sorted({*self.shape, *other.shape})[:SHAPE]
        both = set(self.shape) & set(other.shape)
        return sum(number in both for number in union) / len(union) if union else 0.0


def mark_all(segments: Sequence[Segment], key: bytes, known: Mapping[int, Mark]) -> tuple[Mark, ...]:
    """A mark for each segment.

    key     up to 64 bytes; digests under different keys cannot be compared
    known   marks by their exact digest: a text that was marked before costs only that

    Nearly every text of a prompt was marked before, so the exact digest is the quickest keyed one at hand: Python's own
    hash, SipHash under a key that each process draws (PEP 456).
    """
    keyed = hashlib.blake2b(digest_size=8, key=key)
    exact = [hash((key, segment.part, segment.text)) for segment in segments]
    return tuple([known.get(e) or _mark(segment, e, keyed) for e, segment in zip(exact, segments, strict=True)])


def _mark(segment: Segment, exact: int, keyed: hashlib.blake2b) -> Mark:
    words = spaced(segment.text)
    sorted_keys = ordered(segment.text) if "{" in words else words
    loosest = segment.part.encode() + masked(sorted_keys)
    by_spaces = _digest(words, keyed)
    return Mark(
        segment.part,
        exact,
        spaced=by_spaces,
        ordered=by_spaces if sorted_keys is words else _digest(sorted_keys, keyed),
        loose=_digest(loosest, keyed),
        name=_digest(segment.name, keyed) if segment.name else 0,
        shape=_shape(loosest, keyed) if segment.part is Part.SYSTEM else (),
    )


def _digest(text: str | bytes, keyed: hashlib.blake2b) -> int:
    """Keyed, so that who reads a process's memory or a metric cannot try texts against it. BLAKE2b (RFC 7693)."""
    begun = keyed.copy()  # the key is worked in once for all
    begun.update(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))
    return int.from_bytes(begun.digest(), "little")


def _shape(text: bytes, keyed: hashlib.blake2b) -> tuple[int, ...]:
    seed = _digest(b"shape", keyed)
    words = text.split(maxsplit=MAX_WORDS)[:MAX_WORDS]
    pairs = {xxhash.xxh3_64_intdigest(first + b" " + second, seed) for first, second in pairwise(words)}
    return tuple(sorted(pairs)[:SHAPE])
