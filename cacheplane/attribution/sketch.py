"""The sketch of one prompt: enough to tell what a later one has in common with it, and nothing that can be read."""

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from cacheplane.attribution.contents import Keys
from cacheplane.attribution.marks import Mark, Segment
from cacheplane.attribution.reasons import Part

MAX_SEGMENTS: Final = 1024  # what a prompt has beyond them is compared by its blocks alone
SKETCH_BYTES: Final = 1_024  # of a sketch without its keys and marks
PLAIN: Final = "plain"

_SYSTEM, _TOOLS, _FRAME = Part.SYSTEM, Part.TOOLS, Part.FRAME  # an enum's members take longer to find than a name


@dataclass(frozen=True, slots=True)
class Origin:
    """Whose prompt it is, and under what its blocks are named.

    space   equal for prompts whose blocks would have one namespace if the epoch were the same: model and sub-namespace
    epoch   of the tenant's salt
    store   False when the client asked to leave no block behind
    """

    tenant: str
    model: str
    space: tuple[str, ...]
    epoch: int
    store: bool = True


@dataclass(slots=True, eq=False)
class Sketch:
    """One prompt, as it is remembered.

    keys      uint64[blocks], of their content without any salt, see `Contents`
    marks     of its segments, in order; `ends` has for each the token behind it
    starts    and the token at which it begins
    exact     and loose: digests of its segments but the template's own words
    stored    it was served and its blocks were stored; False while that is not known
    template  digest of system prompt and tools, equal for orders of tools and volatile values that differ
    """

    origin: Origin
    prompt_tokens: int
    block_size: int
    keys: Keys
    marks: tuple[Mark, ...]
    starts: tuple[int, ...]
    ends: tuple[int, ...]
    template: str
    stored: bool = False
    exact: frozenset[int] = field(init=False)
    loose: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        own = [mark for mark in self.marks if mark.part is not _FRAME]
        self.exact = frozenset([mark.exact for mark in own])
        self.loose = frozenset([mark.loose for mark in own])

    @property
    def bytes(self) -> int:
        """What it takes, its marks counted by whoever shares them between sketches."""
        return SKETCH_BYTES + self.keys.nbytes + 256 * len(self.marks)

    @property
    def reusable(self) -> int:
        """Tokens that a worker can reuse at most: full blocks before the last token, which is always computed."""
        return max(0, self.prompt_tokens - 1) // self.block_size * self.block_size

    def begins_with(self, earlier: "Sketch") -> bool:
        """Whether all segments of an earlier prompt come first, to the letter."""
        size = len(earlier.marks)
        if not 0 < size <= len(self.marks) or self.marks[size - 1].exact != earlier.marks[-1].exact:
            return False  # nearly always: another session ends in something else
        return earlier.marks == self.marks[:size]

    def shared(self, other: "Sketch", beyond: int = 0) -> int:
        """Tokens of the full blocks with which both begin, whatever their salts; 0 when not more than `beyond`."""
        most, least = min(len(self.keys), len(other.keys)), beyond // self.block_size
        # A key commits to every token before it, so one look tells whether anything lies beyond.
        if most <= least or self.keys.item(least) != other.keys.item(least):
            return 0
        if self.keys.item(most - 1) == other.keys.item(most - 1):
            return most * self.block_size
        return int(np.argmin(self.keys[:most] == other.keys[:most])) * self.block_size


def sketch(
    origin: Origin,
    prompt_tokens: int,
    block_size: int,
    content: Keys,
    segments: Sequence[Segment],
    marks: tuple[Mark, ...],
) -> Sketch:
    """content: keys of the prompt's blocks.

    The opening of the assistant's turn goes with the last segment.
    """
    ends = [segment.start + segment.tokens for segment in segments]
    if ends:
        ends[-1] = prompt_tokens
    return Sketch(
        origin,
        prompt_tokens,
        block_size,
        content,
        marks,
        tuple(segment.start for segment in segments),
        tuple(ends),
        _template(marks),
    )


def _template(marks: Sequence[Mark]) -> str:
    """8 hexadecimal digits, or PLAIN for a prompt with neither system prompt nor tools."""
    system = [mark.loose for mark in marks if mark.part is _SYSTEM]
    tools = sorted([mark.loose for mark in marks if mark.part is _TOOLS])
    if not system and not tools:
        return PLAIN
    words = struct.pack(f"<{len(system) + 1 + len(tools)}Q", *system, 0, *tools)
    return hashlib.blake2b(words, digest_size=4).hexdigest()
