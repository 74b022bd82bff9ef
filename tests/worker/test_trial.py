"""Risky grammars are tried in a process that can be stopped."""

import asyncio
import json
import string

import pytest

from worker.trial import Trial, is_risky

ENDLESS = "start: %json " + json.dumps(
    {"allOf": [{"type": "string", "pattern": f"(.*{letter}.*){{3}}"} for letter in string.ascii_letters]}
)
HARMLESS = 'start: "a" | "b"'


@pytest.mark.parametrize(
    ("text", "risky"),
    [
        (ENDLESS, True),
        (HARMLESS, False),
        ("T: " + " & ".join("abcdefghijk"), True),
        (ENDLESS.replace("pattern", "patter\\u006E"), True),
        ('start: %json {"const": "caf\\u00e9"}', False),
    ],
)
def test_many_patterns_are_a_risk(text: str, risky: bool) -> None:
    assert is_risky(text) is risky


async def test_a_compiler_that_does_not_end_is_stopped_and_the_next_grammar_is_tried_all_the_same() -> None:
    trial = Trial(seconds=20.0)
    assert await trial.ends(HARMLESS)
    child = trial._child
    assert child is not None
    trial._seconds = 0.5
    assert not await trial.ends(ENDLESS)
    assert child.returncode is not None
    trial._seconds = 20.0
    assert await trial.ends(HARMLESS)
    assert await trial.ends("start: no such grammar")  # badly, but in time
    await trial.close()
    assert trial._child is None


async def test_a_caller_that_leaves_takes_no_answer_with_it() -> None:
    trial = Trial(seconds=20.0)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await trial.ends(ENDLESS)
    assert trial._child is None
    assert await trial.ends(HARMLESS)
    await trial.close()


async def test_a_child_that_died_is_replaced() -> None:
    trial = Trial(seconds=20.0)
    assert await trial.ends(HARMLESS)
    assert trial._child is not None
    trial._child.kill()
    await trial._child.wait()
    assert await trial.ends(HARMLESS)
    await trial.close()
