"""The tokenizer of a folder: bytes per token, what ends a reply, what renders one; and one error for the rest."""

import json
from collections.abc import Callable
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llguidance import LLTokenizer
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from tests.worker.peers import VOCABULARY, Peer
from tests.worker.tokenizer.folders import CONFIG, TEMPLATE, byte_level, metaspace
from tests.worker.tokenizer.plain import plain
from worker.tokenizer import Vocabulary, read_vocabulary
from worker.weights import ModelError, open_weights

NO_UTF8 = b"\xff"  # in no text, and llguidance's mark for special tokens
texts = plain(st.text(st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from("the and 0123 🧂塩é\n\t"))))

Files = dict[str, Any]
Read = Callable[[Files], Vocabulary]


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Peer("qwen2").write_folder(tmp_path_factory.mktemp("weights") / "model")


@pytest.fixture
def folder(weights: Path, tmp_path: Path) -> Path:
    (weights / "generation_config.json").unlink(missing_ok=True)
    copytree(weights, tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def read(folder: Path) -> Read:
    """Reads a folder with these files in it; text as it is, anything else as JSON."""

    def written(files: Files) -> Vocabulary:
        for name, content in files.items():
            (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))
        return read_vocabulary(open_weights(folder))

    return written


def files(tokenizer: Tokenizer | None = None, **settings: Any) -> Files:
    return {"tokenizer.json": (tokenizer or byte_level()).to_str(), "tokenizer_config.json": CONFIG | settings}


@pytest.mark.parametrize("build", [byte_level, metaspace])
def test_the_bytes_of_the_tokens_join_to_the_text(build: Callable[[], Tokenizer], read: Read) -> None:
    found = read(files(build(), eos_token=None) | {"generation_config.json": {"eos_token_id": 2}})
    tokenizer = Tokenizer.from_str(found.json)

    def shown(text: str) -> str:
        """One of SentencePiece's kind imagines a space before text that begins with none, and knows no other mark."""
        if build is byte_level:
            return text
        spaced = text.replace("\u2581", " ")
        return spaced if spaced[:1] in ("", " ") else f" {spaced}"

    @given(text=texts)
    def law(text: str) -> None:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        joined = b"".join(found.texts[token] for token in ids)
        assert joined.decode() == shown(text)

    law()


@pytest.mark.parametrize("build", [byte_level, metaspace])
def test_grammars_see_the_same_bytes(build: Callable[[], Tokenizer], read: Read) -> None:
    found = read(files(build(), eos_token=None) | {"generation_config.json": {"eos_token_id": 2}})
    seen = LLTokenizer(found.json, n_vocab=len(found), eos_token=found.stop_ids)
    for token, text in enumerate(found.texts):
        if text not in (b"", NO_UTF8) and token not in found.stop_ids:
            assert seen.decode_bytes([token]) == text


def test_ids_are_those_of_transformers(read: Read, folder: Path) -> None:
    found = read(files() | {"tokenizer_config.json": CONFIG | {"tokenizer_class": "PreTrainedTokenizerFast"}})
    theirs = AutoTokenizer.from_pretrained(folder)
    text = "the <tool_call> then<|im_end|>🧂"
    assert Tokenizer.from_str(found.json).encode(text, add_special_tokens=False).ids == theirs.encode(text)
    assert found.eos_id == theirs.eos_token_id


def test_special_tokens_are_never_shown_and_added_ones_are(read: Read) -> None:
    found = read(files())
    first = len(byte_level().get_vocab()) - 4
    assert found.control == {first: "<|end|>", first + 1: "<|im_start|>", first + 2: "<|im_end|>"}
    assert found.texts[first : first + 4] == [b"", b"", b"", b"<tool_call>"]
    assert len(found) == VOCABULARY
    assert found.texts[first + 4 :] == [b""] * (VOCABULARY - first - 4)


def test_everything_that_a_file_names_ends_a_reply(read: Read) -> None:
    found = read(files() | {"generation_config.json": {"eos_token_id": [258, 5]}})
    assert (found.eos_id, found.stop_ids) == (260, [5, 258, 260])


def test_an_end_that_is_an_added_token_is_not_shown(read: Read) -> None:
    found = read(files(eos_token={"content": "<tool_call>"}))
    assert found.eos_id == 261
    assert found.control[261] == "<tool_call>"
    assert found.texts[261] == b""


def test_a_model_without_a_first_token_has_none(read: Read) -> None:
    assert read(files()).bos_id is None
    assert read(files(bos_token="<|im_start|>")).bos_id == 259


@pytest.mark.parametrize(
    ("more", "template"),
    [
        ({}, TEMPLATE),
        ({"tokenizer_config.json": CONFIG | {"chat_template": None}}, ""),
        (
            {
                "tokenizer_config.json": CONFIG
                | {"chat_template": [{"name": "rag", "template": "r"}, {"name": "default", "template": "d"}]}
            },
            "d",
        ),
        ({"chat_template.jinja": "own file\n"}, "own file\n"),
    ],
)
def test_the_chat_template_is_a_setting_one_of_several_or_a_file(more: Files, template: str, read: Read) -> None:
    assert read(files() | more).chat_template == template


def test_what_cut_or_filled_up_text_in_training_is_left_out(read: Read) -> None:
    tokenizer = byte_level()
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=16)
    assert len(Tokenizer.from_str(read(files(tokenizer)).json).encode("abcdefgh").ids) == 8


def decoded_by(kind: dict[str, Any]) -> str:
    return json.dumps(json.loads(byte_level().to_str()) | {"decoder": kind})


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"tokenizer.json": "{}"}, "tokenizer.json"),
        ({"tokenizer.json": decoded_by({"type": "Sequence", "decoders": 5})}, "tokenizer.json is not a tokenizer"),
        ({"tokenizer.json": decoded_by({"type": "Sequence", "decoders": []})}, "a decoder of  is not supported"),
        ({"tokenizer_config.json": "[" * 100_000}, "tokenizer_config.json is not a JSON object"),
        ({"tokenizer.json": decoded_by({"type": "WordPiece", "prefix": "##", "cleanup": True})}, "WordPiece"),
        ({"tokenizer_config.json": []}, "tokenizer_config.json is not a JSON object"),
        ({"tokenizer_config.json": CONFIG | {"eos_token": "<gone>"}}, "eos_token is not a token"),
        ({"tokenizer_config.json": {"eos_token": None}}, "no eos token is named"),
        ({"tokenizer_config.json": CONFIG | {"chat_template": 5}}, "chat_template"),
        ({"generation_config.json": {"eos_token_id": VOCABULARY}}, "generation_config.json eos_token_id"),
        ({"generation_config.json": {"eos_token_id": True}}, "generation_config.json eos_token_id"),
    ],
)
def test_what_can_not_be_right_is_refused_by_name(more: Files, reason: str, read: Read) -> None:
    with pytest.raises(ModelError, match=reason):
        read(files() | more)


def test_more_tokens_than_the_embedding_has_rows_are_refused(read: Read) -> None:
    tokenizer = byte_level()
    tokenizer.add_tokens([f"more{number}" for number in range(VOCABULARY)])
    with pytest.raises(ModelError, match=f"the embedding {VOCABULARY} rows"):
        read(files(tokenizer))


def test_a_folder_without_a_tokenizer_is_refused(read: Read) -> None:
    with pytest.raises(ModelError, match=r"tokenizer\.json is missing"):
        read({})
