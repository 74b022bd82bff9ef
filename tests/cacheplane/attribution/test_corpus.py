"""Every constructed case is told the reasons that it was made for, and no others."""

from collections import Counter

import pytest

from cacheplane.attribution import Reason
from tests.cacheplane.attribution.casebook import Case
from tests.cacheplane.attribution.corpus import CASES


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_case_is_told_its_reasons(case: Case) -> None:
    told = case.run()
    assert told.reasons - {Reason.BELOW_BLOCK} == case.reasons
    assert 1 <= told.of(Reason.BELOW_BLOCK) <= 16
    assert sum(told.misses.tokens.values()) == told.prompt - told.cached
    if case.change is None:
        assert told.misses.divergence is None
    else:
        assert (told.divergence.part, told.divergence.kind) == case.change
        assert told.divergence.token < told.prompt


def test_the_corpus_has_two_cases_for_every_reason() -> None:
    assert len(CASES) >= 60
    assert len({case.name for case in CASES}) == len(CASES)
    count = Counter(reason for case in CASES for reason in case.reasons or {Reason.BELOW_BLOCK})
    assert {reason: count[reason] for reason in Reason if count[reason] < 2} == {}
