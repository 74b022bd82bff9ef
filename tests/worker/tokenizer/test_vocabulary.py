"""Whether two models have the same tokens."""

from dataclasses import replace

from worker.tokenizer import Vocabulary

ONE = Vocabulary([b"a", b"", b"b"], {1: "<end>"}, None, 1, [1], "", "{}")


def test_the_same_tokens_differ_in_nothing_that_counts() -> None:
    padded = replace(ONE, texts=[*ONE.texts, b"", b""], stop_ids=[], chat_template="x")
    shown = replace(ONE, texts=[b"a", b"<end>", b"b"], control={})
    for other in (ONE, padded, shown):
        assert ONE.difference(other) is None
        assert other.difference(ONE) is None


def test_another_size_is_told_by_both() -> None:
    assert ONE.difference(replace(ONE, texts=[*ONE.texts, b"c"])) == "3 tokens here and 4 there"


def test_the_first_token_that_differs_is_told() -> None:
    other = replace(ONE, texts=[b"a", b"", b"c" * 1000], control={1: "<stop>"})
    assert ONE.difference(other) == "token 1 is b'<end>' here and b'<stop>' there"
    other = replace(other, control=ONE.control)
    assert ONE.difference(other) == f"token 2 is b'b' here and {b'c' * 40!r} there"
