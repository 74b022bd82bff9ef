"""Tries a risky grammar in a process of its own, which can be stopped when the compiler does not come to an end.

llguidance bounds its work by fuel, but not that of its error messages: sixteen patterns in one `allOf` take seconds,
and two more take four times as long. A thread in which that happens is lost.
"""

import asyncio
import re
import resource
import sys
from contextlib import suppress

from llguidance import LLMatcher

from worker.limits import GRAMMAR_LIMITS

_CHILD_BYTES = 2 << 30
_HIDDEN = re.compile(r"\\u00[2-7]")  # a letter that needs no escape: "pattern" may be spelled with one
_HARMLESS = 8  # patterns that may meet in one grammar; they take milliseconds


def is_risky(text: str) -> bool:
    """Whether so many patterns may have to be intersected that the compiler could take for ever, or some are hidden."""
    return text.count('"pattern"') + text.count("&") > _HARMLESS or _HIDDEN.search(text) is not None


class Trial:
    """Compiles one grammar at a time in a child, which is started when it is first needed."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._child: asyncio.subprocess.Process | None = None
        self._lock = asyncio.Lock()
        self._answered = True

    async def ends(self, text: str) -> bool:
        """Whether compiling comes to an end in time, well or badly."""
        async with self._lock:
            try:
                async with asyncio.timeout(self._seconds):
                    return await self._asked(text)
            except (TimeoutError, OSError):
                return False
            finally:
                # Also when the caller is cancelled: an answer that nobody has read would be taken for the next one's.
                if self._child is not None and not self._answered:
                    await self.close()

    async def close(self) -> None:
        """Ends the child."""
        child, self._child = self._child, None
        if child is not None and child.returncode is None:
            with suppress(ProcessLookupError):
                child.kill()
            await child.wait()

    async def _asked(self, text: str) -> bool:
        self._answered = False
        if self._child is None or self._child.returncode is not None:
            self._child = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "worker.trial", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
            )
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        raw = text.encode()
        self._child.stdin.write(len(raw).to_bytes(4) + raw)
        await self._child.stdin.drain()
        self._answered = await self._child.stdout.read(1) == b"."
        return self._answered


def main() -> None:
    """Reads grammars from stdin, each behind its length in four bytes, and writes a dot for each that is done with."""
    resource.setrlimit(resource.RLIMIT_AS, (_CHILD_BYTES, _CHILD_BYTES))
    while size := sys.stdin.buffer.read(4):
        text = sys.stdin.buffer.read(int.from_bytes(size)).decode()
        LLMatcher.validate_grammar(LLMatcher.grammar_from_lark(text), limits=GRAMMAR_LIMITS)
        sys.stdout.buffer.write(b".")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
