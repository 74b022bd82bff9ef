"""Texts for the laws of tokenizers."""

from hypothesis.strategies import SearchStrategy

from tests.worker.tiny import CONTROL
from tests.worker.tokenizer.folders import SPECIALS

MARKS = (*CONTROL, *SPECIALS, "<unk>", "<s>", "</s>")


def plain(texts: SearchStrategy[str]) -> SearchStrategy[str]:
    """Those that spell no special token, which hypothesis does at times: it tries strings that it finds in sources, and
    such a token is shown as nothing."""
    return texts.filter(lambda text: not any(mark in text for mark in MARKS))
