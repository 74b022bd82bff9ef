"""Cuts before merging: the same ids as the tokenizers that the names stand for."""

import inspect
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from transformers import GPT2Tokenizer, Qwen2Tokenizer
from transformers.convert_slow_tokenizer import TikTokenConverter

from tests.worker.tokenizer.plain import plain
from tests.worker.tokenizer.trained import LINES, byte_level, byte_level_metadata
from worker.tokenizer.gguf import read_metadata
from worker.tokenizer.pretokenizers import pre_tokenizer
from worker.weights import ModelError

texts = plain(
    st.lists(
        st.sampled_from(LINES[0].split(" ") + LINES[2].split(" "))
        | st.text(st.sampled_from("aZé'sT 0127½²³\n\r\t.,$Ὼ東🙂"))
        | st.text()
    ).map(" ".join)
)


@cache
def peer(kind: str) -> Tokenizer:
    """The same vocabulary and merges in a tokenizer that was put together by others, or from their pattern."""
    vocabulary = {name: index for index, name in enumerate(byte_level().names)}
    classes: dict[str, Any] = {"gpt-2": GPT2Tokenizer, "qwen2": Qwen2Tokenizer}
    if kind in classes:
        whole: Tokenizer = classes[kind](vocab=vocabulary, merges=byte_level().merges).backend_tokenizer
        return whole
    built = Tokenizer(models.BPE(vocabulary, byte_level().merges, ignore_merges=kind == "llama-bpe"))
    digits: pre_tokenizers.PreTokenizer = pre_tokenizers.Digits(individual_digits=True)
    by_library: pre_tokenizers.PreTokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if kind == "llama-bpe":
        pattern = inspect.signature(TikTokenConverter.__init__).parameters["pattern"].default
        digits = pre_tokenizers.Split(Regex(pattern), "isolated")
        by_library = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    built.pre_tokenizer = pre_tokenizers.Sequence([digits, by_library])
    return built


@cache
def ours(kind: str) -> Tokenizer:
    found = read_metadata(byte_level_metadata(kind), 1000)
    return Tokenizer.from_str(found.json)


@pytest.mark.parametrize("kind", ["gpt-2", "smollm", "qwen2", "llama-bpe"])
@given(text=texts)
def test_ids_are_those_of_the_named_tokenizer(kind: str, text: str) -> None:
    assert ours(kind).encode(text).ids == peer(kind).encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize(
    ("kind", "text", "pieces"),
    [
        ("gpt-2", "It's 12345 WE'RE", ["It", "'s", "Ġ12345", "ĠWE", "'", "RE"]),
        ("smollm", "It's 123", ["It", "'s", "Ġ", "1", "2", "3"]),
        ("qwen2", "WE'RE 123\n\nx", ["WE", "'RE", "Ġ", "1", "2", "3", "ĊĊ", "x"]),
        ("llama-bpe", "WE'RE 12345\n\nx", ["WE", "'RE", "Ġ", "123", "45", "ĊĊ", "x"]),
        ("tekken", "helloWorld 12 a/b//\n", ["hello", "World", "Ġ", "1", "2", "Ġa", "/b", "//Ċ"]),
        ("default", "a+b==12345 it's", ["a", "+", "b", "==", "123", "45", "Ġit", "'", "s"]),
    ],
)
def test_every_name_cuts_as_published(kind: str, text: str, pieces: list[str]) -> None:
    assert [piece for piece, _ in pre_tokenizer(kind).build().pre_tokenize_str(text)] == pieces


def test_other_names_of_the_same_are_the_same() -> None:
    assert pre_tokenizer("llama3") is pre_tokenizer("llama-bpe")
    assert pre_tokenizer("deepseek-r1-qwen") is pre_tokenizer("qwen2")


def test_a_name_that_we_do_not_know_is_refused() -> None:
    with pytest.raises(ModelError, match=r"'gpt-4o' is not supported; default, gpt-2"):
        pre_tokenizer("gpt-4o")


def test_a_whole_token_goes_before_merges_where_the_model_was_made_so() -> None:
    names = [*byte_level().names, "than than"]
    entries = byte_level_metadata("llama-bpe") | {"tokenizer.ggml.tokens": [*names[:-1], "otherthan"]}
    whole = Tokenizer.from_str(read_metadata(entries, 1000).json)
    assert whole.encode("otherthan").tokens == ["otherthan"]
    cut = Tokenizer.from_str(read_metadata(entries | {"tokenizer.ggml.pre": "gpt-2"}, 1000).json)
    assert len(cut.encode("otherthan").tokens) > 1
