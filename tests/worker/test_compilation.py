"""Grammars beside the event loop: one of a tag at a time, and in time or not at all."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from tests.worker.test_trial import ENDLESS, HARMLESS
from worker.compilation import Compilation
from worker.grammar import GrammarCompiler, LLGrammar
from worker.tokenizer import Vocabulary
from worker.wire import WorkerError

SLOW = 'start: "slow" | "slower"'


class Gated(GrammarCompiler):
    """Compiles what is slow when the gate is opened, and counts how much of it is at it."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        super().__init__(vocabulary)
        self.begun, self.gate = threading.Event(), threading.Event()
        self.slow = 0

    def compile(self, text: str, tag: str = "") -> LLGrammar:
        if text.startswith(SLOW):
            self.slow += 1
            self.begun.set()
            self.gate.wait(timeout=60)
            self.slow -= 1
        return super().compile(text, tag)


@pytest.fixture
def compiler(tiny_vocabulary: Vocabulary) -> Iterator[Gated]:
    gated = Gated(tiny_vocabulary)
    yield gated
    gated.gate.set()


async def test_a_tag_whose_grammars_are_slow_keeps_nobody_else_waiting(compiler: Gated) -> None:
    compilation = Compilation(compiler)
    slow = [asyncio.create_task(compilation.grammars(f'{SLOW} | "{at}"', "acme", 1)) for at in range(8)]
    assert await asyncio.to_thread(compiler.begun.wait, 20)
    assert len(await compilation.grammars(HARMLESS, "globex", 2)) == 2
    assert compiler.slow == 1
    compiler.gate.set()
    assert [len(grammars) for grammars in await asyncio.gather(*slow)] == [1] * 8


async def test_one_that_is_not_ready_in_time_is_refused_and_has_its_turn_until_it_ends(compiler: Gated) -> None:
    compilation = Compilation(compiler, seconds=0.2)
    for text in (SLOW, f"{SLOW} "):
        with pytest.raises(WorkerError) as caught:
            await compilation.grammars(text, "acme", 1)
        assert (caught.value.status, caught.value.code, caught.value.param) == (400, "grammar_too_complex", "grammar")
        assert compiler.slow == 1
    assert await compilation.grammars(HARMLESS, "globex", 1)
    compiler.gate.set()
    compilation._seconds = 20.0
    assert await compilation.grammars(SLOW, "acme", 1)
    assert compiler.slow == 0


async def test_a_risky_one_is_tried_first_and_none_is_compiled_that_does_not_end(compiler: Gated) -> None:
    compilation = Compilation(compiler)
    compilation._trial._seconds = 0.5
    with pytest.raises(WorkerError, match="too long to compile"):
        await compilation.grammars(ENDLESS, "acme", 1)
    assert await compilation.grammars(HARMLESS, "acme", 1)
    await compilation.close()


async def test_each_choice_moves_by_itself(compiler: Gated, tiny_vocabulary: Vocabulary) -> None:
    first, second = await Compilation(compiler).grammars(HARMLESS, "acme", 2)
    assert first.accept(tiny_vocabulary.texts.index(b"a"))
    assert first.is_done
    assert not second.is_done
