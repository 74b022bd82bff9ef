"""Arguments of a call as text: one spelling for each value, the one that the grammar generates."""

import json
import re

import msgspec

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_SPACED = {",": ", ", ":": ": "}


def canonical(text: str) -> str:
    """`text` respaced and re-escaped as generated JSON is, when it is a JSON object; any other text as it is.

    Keys keep their order, numbers their digits. Generated arguments are unchanged by it, and what a client's JSON
    library made of them comes back to the text that was generated. No arguments at all are an empty object.
    """
    if not text:
        return "{}"
    if not is_object(text):
        return text
    return "".join(_spelled(token) for token in _TOKEN.findall(text))


def is_object(text: str) -> bool:
    try:
        return isinstance(msgspec.json.decode(text), dict)
    except (msgspec.MsgspecError, RecursionError):
        return False


def _spelled(token: str) -> str:
    if token.startswith('"'):
        return json.dumps(json.loads(token), ensure_ascii=False)
    return _SPACED.get(token, token)
