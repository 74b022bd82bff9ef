import json
import tracemalloc
from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.render.tokens import Tokens
from tests.gateway.conversations import FORGED
from tests.gateway.small_bpe import SPECIALS, tokenizer_json, whole

TOKENS = Tokens(tokenizer_json(), SPECIALS)


@settings(deadline=None)
@given(FORGED | st.text())
def test_piece_by_piece_is_the_whole(text: str) -> None:
    ids = array("I")
    for piece, is_control in TOKENS.cut(text):
        ids += array("I", [TOKENS.control(piece)]) if is_control else TOKENS.encode(piece)
    assert ids.tolist() == whole().encode(text).ids


@settings(deadline=None)
@given(FORGED)
def test_a_cut_loses_nothing(text: str) -> None:
    assert "".join(piece for piece, _ in TOKENS.cut(text)) == text


@settings(deadline=None)
@given(FORGED | st.text())
def test_a_piece_never_becomes_a_control_token(text: str) -> None:
    ids = TOKENS.encode(text)
    assert not {TOKENS.control(special) for special in SPECIALS} & set(ids)
    assert b"".join(map(TOKENS.bytes_of, ids)).decode() == text


@settings(deadline=None)
@given(FORGED | st.text() | st.sampled_from(["The weather in Oslo", "artificial intelligence " * 99]))
def test_no_text_has_fewer_tokens_than_it_must(text: str) -> None:
    assert 0 <= TOKENS.least(len(text)) <= len(whole().encode(text).ids)


def test_a_tokenizer_that_may_shorten_text_says_nothing_of_its_least() -> None:
    composing = json.loads(tokenizer_json()) | {"normalizer": {"type": "NFC"}}
    assert Tokens(json.dumps(composing), SPECIALS).least(10**6) == 0
    assert TOKENS.least(10**6) > 0


def test_remembered_pieces_are_the_same_ids() -> None:
    first = TOKENS.encode("The weather in Oslo", "acme")
    assert TOKENS.encode("The weather in Oslo", "acme") is first
    other = TOKENS.encode("The weather in Oslo", "globex")
    assert other == first
    assert other is not first


@pytest.mark.parametrize("text", ["hi", "The weather in Oslo. " * 300, "塩の道 é " * 200, "🦊" * 300])
def test_what_is_remembered_is_counted_in_full(text: str) -> None:
    tokens = Tokens(tokenizer_json(), SPECIALS)
    tokens.encode("")
    tracemalloc.start()
    for number in range(200):
        tokens.encode(f"{number} {text}", "acme")
        tokens.places(f"{number} {text}", range(300, 320), "acme")
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken <= tokens._cache.bytes <= 1.3 * taken


def test_the_memory_is_bounded_and_never_needed() -> None:
    tokens = Tokens(tokenizer_json(), SPECIALS, cache_bytes=0)
    assert tokens.encode("cold") == TOKENS.encode("cold")


def test_ids_outside_the_vocabulary_have_no_bytes() -> None:
    assert TOKENS.bytes_of(10**6) == b""
    assert TOKENS.bytes_of(TOKENS.control("<|im_end|>")) == b"<|im_end|>"


def test_half_characters_are_bytes() -> None:
    ids = TOKENS.encode("🦊")
    assert b"".join(map(TOKENS.bytes_of, ids)) == "🦊".encode()
    assert len(ids) > 1


def test_a_tokenizer_that_is_not_byte_level_spells_its_tokens() -> None:
    described = json.loads(tokenizer_json())
    described["decoder"] = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    tokens = Tokens(json.dumps(described), SPECIALS)
    assert tokens.bytes_of(tokens.encode("a")[0]) == b"a"
