"""Looking up what came after a run of tokens, against a search through all of them."""

from array import array
from itertools import pairwise, takewhile

import pytest
from hypothesis import given
from hypothesis import strategies as st

import worker.ngrams
from worker.ngrams import NgramIndex


def searched(tokens: list[int], lengths: tuple[int, ...], most: int) -> list[int]:
    """What came after the last earlier occurrence of the longest run that the tokens end with, over and over."""
    for length in lengths:
        run = tokens[-length:]
        for end in range(len(tokens) - 1, length - 1, -1):
            if len(run) == length and tokens[end - length : end] == run:
                rest = tokens[end:]
                return [rest[at % len(rest)] for at in range(most)]
    return []


def turns(tokens: list[int], length: int) -> int:
    """How many times in a row the run that the tokens end with went on otherwise than the time before, at most two."""
    run = tokens[-length:]
    after = [tokens[end] for end in range(length, len(tokens)) if tokens[end - length : end] == run]
    changes = [one != other for one, other in pairwise(after)]
    return len(list(takewhile(bool, reversed(changes[-2:]))))


@given(
    tokens=st.lists(st.integers(0, 3), max_size=60),
    cuts=st.lists(st.integers(0, 60), max_size=6),
    lengths=st.sampled_from([(5, 3), (2, 1), (4,)]),
    most=st.integers(1, 8),
)
def test_it_finds_what_a_search_finds_however_the_sequence_has_grown(
    tokens: list[int], cuts: list[int], lengths: tuple[int, ...], most: int
) -> None:
    index = NgramIndex(lengths)
    for end in [*sorted(cut for cut in cuts if cut < len(tokens)), len(tokens)]:
        found, ranks = index.find(array("I", tokens[:end]), most)
        assert found == searched(tokens[:end], lengths, most)
        assert len(found) == len(ranks)
        if found:
            length = lengths[ranks[0] % len(lengths)]
            assert searched(tokens[:end], (length,), most) == found
            assert ranks[0] // len(lengths) == turns(tokens[:end], length)


def test_a_long_sequence_is_known_from_its_last_part_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker.ngrams, "_MOST_TOKENS", 100)
    index, tokens = NgramIndex((3,)), array("I", range(1000))
    for token in range(1000, 1300):
        tokens.append(token)
        index.find(tokens, 4)
        assert sum(map(len, index._after)) <= 101
    tokens.extend([1280, 1281, 1282])
    assert index.find(tokens, 4) == ([1283, 1284, 1285, 1286], [0, 0, 0, 0])
    tokens.extend([7, 8, 9])
    assert index.find(tokens, 4) == ([], [])
