"""Keys of content: equal for equal beginnings, and for nothing else."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cacheplane.attribution.contents import MAX_BLOCKS, Contents
from cacheplane.identity import BlockChain, Namespace, token_words

SECRET = bytes(range(32))
ids = st.lists(st.integers(0, 2**32 - 1), max_size=80)
few = st.lists(st.integers(0, 1), max_size=24)  # so that beginnings are often alike


@given(few, few, st.sampled_from([1, 2, 4, 8]))
def test_two_prompts_have_as_many_keys_in_common_as_a_chain_would(one: list[int], other: list[int], size: int) -> None:
    contents, space = Contents(), Namespace(bytes(32))
    ours, theirs = (contents.keys(token_words(tokens), size) for tokens in (one, other))
    first, second = (BlockChain.of(tokens, space, size).hashes for tokens in (one, other))
    assert (len(ours), len(theirs)) == (len(first), len(second))
    alike = [a == b for a, b in zip(first, second, strict=False)]
    assert [a == b for a, b in zip(ours.tolist(), theirs.tolist(), strict=False)] == alike


@given(ids, st.sampled_from([1, 4, 16]))
def test_a_key_is_the_sum_that_it_is_said_to_be(tokens: list[int], size: int) -> None:
    contents = Contents(SECRET)
    keys = contents.keys(token_words(tokens), size).tolist()
    of_block, of_place = contents._of_block.tolist(), contents._of_place[size].tolist()
    more, total, expected = contents._of_any.item(), 0, list[int]()
    for block in range(len(tokens) // size):
        part = tokens[block * size : (block + 1) * size]
        total += of_block[block] * (more + sum(token * number for token, number in zip(part, of_place, strict=True)))
        expected.append(total % 2**64)
    assert keys == expected


def test_a_secret_gives_the_same_keys_again_and_another_one_others() -> None:
    words = token_words(list(range(100)))
    same = Contents(SECRET).keys(words, 16)
    assert np.array_equal(same, Contents(SECRET).keys(words, 16))
    assert not np.isin(same, Contents().keys(words, 16)).any()


def test_blocks_of_zeros_have_keys_of_their_own() -> None:
    keys = Contents(SECRET).keys(token_words([0] * 64), 16).tolist()
    assert len({0, *keys}) == 5


def test_a_prompt_has_no_more_keys_than_are_remembered() -> None:
    assert len(Contents(SECRET).keys(token_words([7] * (MAX_BLOCKS + 5)), 1)) == MAX_BLOCKS
