"""What a reply may go on with: by the grammar, by the rules of its end, and when its limit is near."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from worker.allowed import Continuations
from worker.grammar import GrammarCompiler
from worker.tokenizer import Vocabulary


@pytest.fixture(scope="module")
def compiler(tiny_vocabulary: Vocabulary) -> GrammarCompiler:
    return GrammarCompiler(tiny_vocabulary)


@given(banned=st.sets(st.integers(0, 40)), text=st.sampled_from([None, "start: /[a-e]{1,9}/", 'start: "a"']))
def test_what_is_permitted_is_in_the_mask(
    compiler: GrammarCompiler, tiny_vocabulary: Vocabulary, banned: set[int], text: str | None
) -> None:
    grammar = None if text is None else compiler.compile(text)
    allowed = Continuations(grammar, len(tiny_vocabulary), banned)
    mask = allowed.mask()
    permitted = np.array([allowed.permits(token) for token in range(len(mask))])
    assert mask.any()
    assert (mask >= permitted).all()
    assert (mask == permitted).all() or not permitted.any()


def test_where_nothing_else_may_follow_the_end_may_though_it_is_banned(
    compiler: GrammarCompiler, tiny_vocabulary: Vocabulary
) -> None:
    grammar = compiler.compile('start: "a"')
    assert grammar.accept(tiny_vocabulary.texts.index(b"a"))
    allowed = Continuations(grammar, len(tiny_vocabulary), tiny_vocabulary.stop_ids)
    assert not any(allowed.permits(token) for token in tiny_vocabulary.stop_ids)
    assert np.flatnonzero(allowed.mask()).tolist() == tiny_vocabulary.stop_ids


def test_one_that_is_steered_says_so_of_all_tokens_alone() -> None:
    def first(mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
        narrowed = np.zeros_like(mask)
        narrowed[0] = mask[0]
        return narrowed

    steered = Continuations(None, 4, (), first)
    assert steered.mask().tolist() == [True, False, False, False]
    assert not any(map(steered.permits, range(4)))
