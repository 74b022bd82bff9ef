"""How long open-ended values may get when the schema does not say."""

from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits that are put where a schema has none; an instance within them is valid for the schema as sent.

    A small model left alone in an open string repeats itself until the token limit, and its JSON never closes. These
    limits end it. They are far above what arguments and answers usually need.

    string       characters of a string
    items        entries of a list
    properties   entries of an object with free keys
    key          characters of a free key
    depth        levels of a value of any shape
    calls        tool calls in one turn
    """

    string: int = 1024
    items: int = 32
    properties: int = 16
    key: int = 64
    depth: int = 3
    calls: int = 8

    def within(self, max_tokens: int | None) -> Self:
        """Tighter ones for a short reply: a value that would use it up alone is cut to something that can close.

        A token is about four characters of English, so a string of `max_tokens` characters takes a quarter of them.
        """
        if max_tokens is None:
            return self
        return type(self)(
            string=min(self.string, max(16, max_tokens)),
            items=min(self.items, max(2, max_tokens // 32)),
            properties=min(self.properties, max(2, max_tokens // 32)),
            key=min(self.key, max(8, max_tokens // 4)),
            depth=self.depth,
            calls=self.calls,
        )
