"""How long the keyword that is to blame is looked for."""

from typing import Any

import pytest

from gateway.schemas import blame


def test_the_search_ends_with_its_time_and_blames_what_it_has_come_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a clock by which each try takes a third of a second, as of small schemas that combine many alternatives."""
    tries = 0

    def refusal(_schema: dict[str, Any]) -> str | None:
        nonlocal tries
        tries += 1
        return None

    monkeypatch.setattr("gateway.schemas.blame.time.thread_time", lambda: tries / 3)
    schema = {"type": "object", "properties": {str(number): {"const": number} for number in range(100)}}
    error = blame.blame(schema, "too much", "tools[0]", refusal)
    assert tries == 4
    assert (error.message, error.param) == ("`properties` here cannot be enforced: too much", "tools[0].properties")
