"""Ids of tool calls as a template takes them."""

import re
from base64 import b32encode
from hashlib import blake2b
from typing import Final

LENGTH: Final = 9
"""Of the ids that templates of Mistral's family take, letters and digits, and no others."""

_TAKEN: Final = re.compile(r"[A-Za-z0-9]{9}")


def short(call_id: str) -> str:
    """Nine letters or digits that stand for an id: itself if it is such, else the same ones whenever it comes.

    Clients keep the ids that they have; only the template sees these. Of 45 bits, so that among the calls of one
    conversation two hardly ever get the same.
    """
    if _TAKEN.fullmatch(call_id):
        return call_id
    return b32encode(blake2b(call_id.encode(), digest_size=10).digest()).decode().lower()[:LENGTH]
