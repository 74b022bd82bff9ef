"""SentencePiece's BPE: the ids that its own rule gives, and bytes that join to the text."""

from functools import cache
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llguidance import LLTokenizer
from tokenizers import Tokenizer

from tests.worker.tokenizer.plain import plain
from tests.worker.tokenizer.trained import LINES, piece_metadata, pieces
from worker.tokenizer import Vocabulary
from worker.tokenizer.gguf import read_metadata
from worker.weights import ModelError

SIZE = 600
texts = plain(
    st.lists(st.sampled_from(" ".join(LINES).split(" ")) | st.text(st.sampled_from("aehnrt \n🙂塩")) | st.text()).map(
        " ".join
    )
)


@cache
def vocabulary() -> Vocabulary:
    return read_metadata(piece_metadata(), SIZE)


@cache
def tokenizer() -> Tokenizer:
    return Tokenizer.from_str(vocabulary().json)


def by_the_rule(text: str) -> list[int]:
    """Again and again, of neighbours whose union is a piece, those of the highest score become one, leftmost first."""
    names = pieces().names
    rank = {name: index for index, name in enumerate(names) if index >= 259}
    symbols = list("\u2581" + text.replace(" ", "\u2581")) if text else []
    while True:
        unions = [
            (rank[left + right], at) for at, (left, right) in enumerate(pairwise(symbols)) if left + right in rank
        ]
        if not unions:
            break
        _, at = min(unions)
        symbols[at : at + 2] = [symbols[at] + symbols[at + 1]]
    known = {symbol: rank[symbol] for symbol in symbols if symbol in rank}
    return [
        token
        for symbol in symbols
        for token in ([known[symbol]] if symbol in known else [3 + byte for byte in symbol.encode()])
    ]


@given(text=texts)
def test_ids_are_those_of_the_rule(text: str) -> None:
    assert tokenizer().encode(text).ids == by_the_rule(text)


@given(text=texts)
def test_the_bytes_of_the_tokens_join_to_the_text(text: str) -> None:
    ids = tokenizer().encode(text).ids
    joined = b"".join(vocabulary().texts[token] for token in ids).decode()
    assert joined == (f" {text}".replace("\u2581", " ") if text else "")


def test_each_kind_of_token_has_its_bytes() -> None:
    found, names = vocabulary(), pieces().names
    assert [found.texts[index] for index in (0, 1, 2)] == [b"", b"", b""]
    assert found.texts[3 : 3 + 256] == [bytes([byte]) for byte in range(256)]
    assert found.texts[names.index("\u2581the")] == b" the"
    assert found.texts[len(names) :] == [b""] * (SIZE - len(names))
    assert (found.control, found.stop_ids, found.bos_id) == ({0: "<unk>", 1: "<s>", 2: "</s>"}, [2], 1)


def test_control_tokens_are_matched_whole_and_what_follows_begins_a_word() -> None:
    assert tokenizer().encode("<s>the</s>the").tokens == ["<s>", "\u2581the", "</s>", "\u2581the"]


def test_a_file_may_say_that_no_space_comes_before_the_text() -> None:
    found = read_metadata(piece_metadata() | {"tokenizer.ggml.add_space_prefix": False}, SIZE)
    assert Tokenizer.from_str(found.json).encode("the the").tokens == ["the", "\u2581the"]


def test_grammars_see_the_same_bytes() -> None:
    found = vocabulary()
    seen = LLTokenizer(found.json, n_vocab=SIZE, eos_token=found.stop_ids)
    for token in range(3, len(pieces().names)):
        # 0xFF is in no text, and llguidance's mark for special tokens.
        assert found.texts[token] in (b"\xff", seen.decode_bytes([token]))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"tokenizer.ggml.scores": [-1000.0] * len(pieces().names)}, "ranks two pieces alike"),
        ({"tokenizer.ggml.scores": [0.0]}, "a score for each token"),
        ({"tokenizer.ggml.token_type": [1] * len(pieces().names)}, "one unknown token and 256 bytes"),
    ],
)
def test_what_does_not_fix_the_order_of_merges_is_refused(change: dict[str, list[float]], reason: str) -> None:
    with pytest.raises(ModelError, match=reason):
        read_metadata(piece_metadata() | change, SIZE)
