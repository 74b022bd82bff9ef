"""Grammars for requests, compiled beside the event loop and the engine, under a deadline."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from weakref import WeakValueDictionary

from worker.grammar import Grammar, GrammarCompiler, LLGrammar
from worker.trial import Trial, is_risky
from worker.wire import WorkerError

_SECONDS, _TRIAL_SECONDS = 10.0, 3.0
_THREADS = 4


class Compilation:
    """Compiles one grammar of each tag at a time. So a tag whose grammars take long keeps its own requests waiting, and
    of the threads one, for as long as the compiler needs: it can't be stopped, only left alone.

    seconds   from a request's asking to its grammars, waiting for the tag's turn included
    """

    def __init__(self, compiler: GrammarCompiler, seconds: float = _SECONDS) -> None:
        self._compiler = compiler
        self._seconds = seconds
        self._trial = Trial(_TRIAL_SECONDS)
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="grammar")
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def grammars(self, text: str, tag: str, count: int) -> list[Grammar]:
        """So many of one text, each at its start. WorkerError 400 when it does not compile, or not in time."""
        try:
            async with asyncio.timeout(self._seconds):
                first = self._compiler.known(text, tag) or await self._compiled(text, tag)
        except TimeoutError:
            raise _too_complex() from None
        return [first, *(first.fork() for _ in range(count - 1))]

    async def close(self) -> None:
        """Ends what runs beside the server."""
        await self._trial.close()

    async def _compiled(self, text: str, tag: str) -> Grammar:
        turn = self._turns.setdefault(tag, asyncio.Lock())
        await turn.acquire()
        try:
            if is_risky(text) and not await self._trial.ends(text):
                raise _too_complex()
            work = asyncio.get_running_loop().run_in_executor(self._threads, self._compiler.compile, text, tag)
        except BaseException:
            turn.release()
            raise
        work.add_done_callback(partial(_end, turn))
        return await asyncio.shield(work)  # who waits may leave; the turn ends with the thread's work


def _end(turn: asyncio.Lock, work: "asyncio.Future[LLGrammar]") -> None:
    turn.release()
    if not work.cancelled():
        work.exception()  # of which nobody may be left to hear


def _too_complex() -> WorkerError:
    return WorkerError(400, "grammar_too_complex", "the grammar takes too long to compile", "grammar")
