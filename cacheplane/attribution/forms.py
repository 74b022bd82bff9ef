"""Forms of a text in which it is compared: equal up to spacing, up to the order of keys, up to values that change."""

import re
from typing import Any, Final

import msgspec

_ESCAPED_SPACE: Final = re.compile(r"\\[rnt]")

# What a clock writes in letters, wherever it stands: a form need not be readable. Each alternative begins with a
# capital letter, which lets the search skip nearly everything.
_NAMES: Final = re.compile(
    rb"(?:Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday|January|February|March|April|June|July|August"
    rb"|September|October|November|December|Mon|Tue|Wed|Thu|Fri|Sat|Sun|Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"
    rb"|AM|PM)(?![a-z])"
)
_ZEROS: Final = bytes.maketrans(b"123456789", b"000000000")
_FROM_DIGIT: Final = re.compile(rb"0[A-Za-z0_-]{7,}")
_WORD: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0_-")
ID_BYTES: Final = 12  # a word of this length with ID_DIGITS digits in it is an id, a uuid or hexadecimal
ID_DIGITS: Final = 3
ID_LEAD: Final = 64  # letters before its first digit that go with it


def spaced(text: str) -> str:
    """Every run of white space is one space, at the ends none; what JSON strings escape is white space too."""
    if "\\" in text:
        text = _ESCAPED_SPACE.sub(" ", text)
    return " ".join(text.split())


def ordered(text: str) -> str:
    """Every JSON object in the text, if it is whole or stands on a line, with its keys sorted; then as `spaced`.

    Without a brace in it a text is in order as it is.
    """
    if "{" not in text:
        return spaced(text)
    start, end = text.index("{"), text.rfind("}") + 1
    whole = _sorted(text[start:end])
    if whole is None:
        return spaced("\n".join([_sorted(line) or line for line in text.split("\n")]))
    return spaced(text[:start] + whole + text[end:])


def masked(text: str) -> bytes:
    """Without what changes by itself: numbers, dates, times, names of days and months, uuids and other ids.

    Made to be quick, since it reads every text once: an edit of nothing but a number looks like one of these.
    """
    data = text.encode("utf-8", "surrogatepass").translate(_ZEROS)
    if b"0" in data:
        data = _without_ids(data).translate(None, b"0")
    return _NAMES.sub(b"#", data)


def _without_ids(data: bytes) -> bytes:
    """Every id is one sign; all digits are 0 already."""
    kept, at = [], 0
    for match in _FROM_DIGIT.finditer(data):
        start, end = match.span()
        floor = max(at, start - ID_LEAD)
        while start > floor and data[start - 1] in _WORD:
            start -= 1
        if end - start >= ID_BYTES and data.count(b"0", start, end) >= ID_DIGITS:
            kept += [data[at:start], b"#"]
            at = end
    return b"".join([*kept, data[at:]])


def _sorted(text: str) -> str | None:
    """A JSON object, its keys sorted at every depth; None when it is none."""
    try:
        value: Any = msgspec.json.decode(text)
        return msgspec.json.encode(value, order="sorted").decode() if isinstance(value, dict) else None
    except (msgspec.MsgspecError, RecursionError, UnicodeError, OverflowError):
        return None
