"""The vocabulary of a model file: bytes per token here, tokenizer.json for the gateway."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, pre_tokenizers

from tests.worker.tiny import CONTROL, EOS, TEMPLATE, Value, metadata, vocabulary, write_gguf
from tests.worker.tokenizer.plain import plain
from tests.worker.tokenizer.trained import piece_metadata
from worker.tokenizer import Vocabulary
from worker.tokenizer.gguf import read_metadata
from worker.weights import GGUFFile, ModelError

Read = Callable[[dict[str, Value]], Vocabulary]
texts = plain(
    st.text(st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from("the and 0123 🧂塩é\n\t\u200d🏽")))
)


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Reads the vocabulary of the tiny model with some of its metadata changed; None leaves a key out."""

    def changed(entries: dict[str, Value]) -> Vocabulary:
        file = GGUFFile(write_gguf(tmp_path / "f", entries, {}))
        return read_metadata(file.metadata, len(vocabulary()) + 1)

    return changed


@given(text=texts)
def test_the_bytes_of_the_tokens_join_to_the_text(tiny_vocabulary: Vocabulary, text: str) -> None:
    ids = Tokenizer.from_str(tiny_vocabulary.json).encode(text, add_special_tokens=False).ids
    assert b"".join(tiny_vocabulary.texts[token] for token in ids) == text.encode()


@given(text=texts)
def test_tokenizer_json_round_trips(tiny_vocabulary: Vocabulary, text: str) -> None:
    once = Tokenizer.from_str(tiny_vocabulary.json)
    twice = Tokenizer.from_str(once.to_str())
    ids = once.encode(text).ids
    assert twice.encode(text).ids == ids
    assert once.decode(ids, skip_special_tokens=False) == text


def test_every_token_keeps_its_number(tiny_vocabulary: Vocabulary) -> None:
    tokenizer = Tokenizer.from_str(tiny_vocabulary.json)
    assert [tokenizer.id_to_token(index) for index in range(len(tiny_vocabulary))] == vocabulary()
    assert tokenizer.get_vocab_size() == len(tiny_vocabulary)


def test_merges_apply_and_digits_stay_apart(tiny_vocabulary: Vocabulary) -> None:
    tokenizer = Tokenizer.from_str(tiny_vocabulary.json)
    assert tokenizer.encode("the and then").tokens == ["the", "Ġand", "Ġthe", "n"]
    assert tokenizer.encode("2012").tokens == ["2", "0", "1", "2"]


def test_control_tokens_are_matched_whole_and_have_no_text(tiny_vocabulary: Vocabulary) -> None:
    ids = Tokenizer.from_str(tiny_vocabulary.json).encode("<|im_start|>on<|im_end|>").ids
    assert (ids[0], ids[-1]) == (1, 2)
    assert tiny_vocabulary.control == dict(enumerate(CONTROL))
    assert [tiny_vocabulary.texts[token] for token in tiny_vocabulary.control] == [b"", b"", b""]


def test_what_ends_a_reply_and_what_renders_one(tiny_vocabulary: Vocabulary) -> None:
    assert tiny_vocabulary.stop_ids == [0, EOS]
    assert (tiny_vocabulary.bos_id, tiny_vocabulary.eos_id) == (1, EOS)
    assert tiny_vocabulary.chat_template == TEMPLATE


def test_an_end_of_turn_token_of_its_own_ends_a_reply_too(read: Read) -> None:
    assert read(metadata() | {"tokenizer.ggml.eot_token_id": 9}).stop_ids == [0, EOS, 9]


def test_a_user_defined_token_is_shown_as_it_is_spelled(read: Read) -> None:
    names = [*vocabulary(), "<tool_call>"]
    kinds = [3] * len(CONTROL) + [1] * (len(names) - len(CONTROL) - 1) + [4]
    found = read(metadata() | {"tokenizer.ggml.tokens": names, "tokenizer.ggml.token_type": kinds})
    ids = Tokenizer.from_str(found.json).encode("on<tool_call>").ids
    assert ids[-1] == len(names) - 1
    assert found.texts[-1] == b"<tool_call>"


def test_a_model_without_token_types_has_no_control_tokens(read: Read) -> None:
    entries = metadata()
    del entries["tokenizer.ggml.token_type"]
    entries["tokenizer.ggml.tokens"] = vocabulary()[len(CONTROL) :]
    assert read(entries).control == {}


def test_the_byte_alphabet_is_that_of_gpt2(tiny_vocabulary: Vocabulary) -> None:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    assert sorted(tiny_vocabulary.texts[3 : 3 + len(letters)]) == [bytes([byte]) for byte in range(256)]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"tokenizer.ggml.pre": "gpt-4o"}, "pre-tokenizer 'gpt-4o'"),
        ({"tokenizer.ggml.model": "t5"}, "tokenizer 't5'"),
        ({"tokenizer.ggml.tokens": ["a"] * 999}, "999 tokens"),
        ({"tokenizer.ggml.token_type": [1, 1]}, "token_type"),
        ({"tokenizer.ggml.tokens": ["塩"], "tokenizer.ggml.token_type": [1]}, "token 0 "),
    ],
)
def test_a_tokenizer_that_we_do_not_read_is_refused_by_name(read: Read, change: dict[str, Value], reason: str) -> None:
    with pytest.raises(ModelError, match=reason):
        read(metadata() | change)


@pytest.mark.parametrize("key", ["tokenizer.ggml.tokens", "tokenizer.ggml.eos_token_id", "tokenizer.ggml.model"])
def test_a_missing_key_is_refused(read: Read, key: str) -> None:
    entries = metadata()
    del entries[key]
    with pytest.raises(ModelError):
        read(entries)


strange = st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.integers()) | st.lists(st.text())


@given(st.data())
def test_anything_else_is_read_or_refused(data: st.DataObject) -> None:
    entries: dict[str, object] = {**data.draw(st.sampled_from([metadata(), piece_metadata()]))}
    entries[data.draw(st.sampled_from(sorted(key for key in entries if key.startswith("tokenizer."))))] = data.draw(
        strange
    )
    with suppress(ModelError):
        assert len(read_metadata(entries, 600)) == 600


def test_a_model_that_names_no_pre_tokenizer_gets_the_default(read: Read) -> None:
    entries = metadata()
    del entries["tokenizer.ggml.pre"]
    named = read(metadata() | {"tokenizer.ggml.pre": "default"})
    assert read(entries).json == named.json
    assert named.json != read(metadata()).json


def test_rows_of_the_embedding_without_a_token_have_no_bytes(read: Read) -> None:
    found = read(metadata())
    assert len(found) == len(vocabulary()) + 1
    assert found.texts[-1] == b""
