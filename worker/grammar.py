"""Constrained decoding behind a narrow interface; llguidance does the work.

source   llguidance's Lark dialect
"""

from collections import deque
from collections.abc import Iterable
from threading import Lock
from typing import Protocol

import numpy as np
from llguidance import LLMatcher, LLTokenizer
from numpy.typing import NDArray

from worker.limits import GRAMMAR_LIMITS
from worker.tagged import TaggedCache
from worker.tokenizer import Vocabulary
from worker.weights import ModelError
from worker.wire import WorkerError

_CACHE_BYTES = 64 << 20
_BYTES_EACH, _BYTES_PER_CHARACTER = 32 << 10, 40  # of a compiled grammar, as measured with sets of 1 to 20 tools
_BYTES_PER_TOKEN = 40  # of what it is known to begin with
# llguidance's words for a token that may not come next; any other reason not to go on is a limit.
_FORBIDDEN = ("doesn't satisfy the grammar", "parser stopped")
_NOTHING = "NoExtensionBias"  # llguidance's word for a grammar that no text can follow
_PANIC = "panic"  # at the latest where rules are more than it can number
_LIMIT_WORDS = ("too big", "too large", "too many", "too complex", "too deeply", "limit", "Unable to determine")


class GrammarLimitError(Exception):
    """A grammar has used up what one step may cost; the sequence cannot go on. The message is llguidance's."""


class Grammar(Protocol):
    """Where one sequence stands in its grammar."""

    def accept(self, token: int) -> bool:
        """Moves on by a token; False when the grammar does not allow it. GrammarLimitError as in `allowed`."""

    def allowed(self) -> NDArray[np.bool_]:
        """Which tokens may come next, [vocabulary]. GrammarLimitError when that cannot be told in bounded time."""

    def permits(self, token: int) -> bool:
        """Whether a token is among those; False also when that cannot be told, which `allowed` then says."""

    def forced(self) -> list[int]:
        """The tokens that must come next whatever the model says; often none."""

    def follow(self, tokens: list[int]) -> list[int]:
        """Those of the tokens that may come next, one after another, and what is forced behind them; stays put."""

    def rollback(self, count: int) -> None:
        """Takes back the last `count` accepted tokens."""

    def fork(self) -> "Grammar":
        """Another one at the same place, which moves by itself."""

    @property
    def is_done(self) -> bool:
        """Whether nothing but the end may follow."""


class LLGrammar:
    """A Grammar by llguidance.

    ahead   the tokens that are forced from here on, if that is known. llguidance finds all of them anew each time it is
            asked, in up to a third of a second where they are many, so they are kept for as long as they come true
    """

    def __init__(self, matcher: LLMatcher, vocabulary: int, ahead: Iterable[int] = ()) -> None:
        self._matcher = matcher
        self._vocabulary = vocabulary
        self._ahead = deque(ahead)
        self._bits = np.zeros(-(-vocabulary // 32), dtype=np.int32)

    def accept(self, token: int) -> bool:
        came_true = self._ahead and self._ahead.popleft() == token
        if not came_true:
            self._ahead.clear()
        if self._matcher.consume_token(token):
            return True
        reason = self._matcher.get_error()
        if any(words in reason for words in _FORBIDDEN):
            return False
        raise GrammarLimitError(reason)

    def allowed(self) -> NDArray[np.bool_]:
        if self._known_ahead():
            only = np.zeros(self._vocabulary, dtype=np.bool_)
            only[self._ahead[0]] = True
            return only
        self._matcher.unsafe_compute_mask_ptr(self._bits.ctypes.data, self._bits.nbytes)
        if self._matcher.is_error():
            raise GrammarLimitError(self._matcher.get_error())
        return np.unpackbits(self._bits.view(np.uint8), count=self._vocabulary, bitorder="little").view(np.bool_)

    def permits(self, token: int) -> bool:
        # Where tokens are forced the mask has fewer than what fits: the text may be spelled in one way only.
        return not self._known_ahead() and bool(self._matcher.validate_tokens([token]))

    def forced(self) -> list[int]:
        return list(self._known_ahead())

    def follow(self, tokens: list[int]) -> list[int]:
        count = self._matcher.validate_tokens(tokens)
        if not count:
            return []
        self._matcher.consume_tokens(tokens[:count])
        forced: list[int] = self._matcher.compute_ff_tokens()
        self._matcher.rollback(count)
        return tokens[:count] + forced

    def rollback(self, count: int) -> None:
        self._ahead.clear()
        self._matcher.rollback(count)

    def fork(self) -> "LLGrammar":
        return LLGrammar(self._matcher.deep_copy(), self._vocabulary, self._ahead)

    @property
    def is_done(self) -> bool:
        if self._matcher.is_error():
            raise GrammarLimitError(self._matcher.get_error())
        return self._matcher.is_stopped()

    def try_out(self) -> int:
        """Takes a first step apart: what it begins with is known then before the engine has it, and all that run there.

        returns   how many tokens are forced
        errors    WorkerError 400 when there is no such step, or none in bounded time
        """
        ahead, other = self._known_ahead(), self.fork()
        try:
            other.accept(ahead[0]) if ahead else other.allowed()
        except GrammarLimitError as error:
            raise _refusal(str(error)) from None
        return len(ahead)

    def _known_ahead(self) -> deque[int]:
        if not self._ahead:
            self._ahead.extend(self._matcher.compute_ff_tokens())
        return self._ahead


class GrammarCompiler:
    """Compiles Lark text into grammars; called from threads other than the engine's.

    Compiled grammars are kept, since agents send the same tools with every turn: each tag's by themselves, so that the
    time it takes tells nobody what others send, and within 64 MiB in all.

    errors   ModelError for tokens of a kind that llguidance does not know
    """

    def __init__(self, vocabulary: Vocabulary, cache_bytes: int = _CACHE_BYTES) -> None:
        self._size = len(vocabulary)
        try:
            self._tokenizer = LLTokenizer(vocabulary.json, n_vocab=self._size, eos_token=vocabulary.stop_ids)
        except ValueError as error:
            raise ModelError(f"its tokens are of a kind that no grammar can follow: {str(error)[:200]}") from None
        self._lock = Lock()
        self._known: TaggedCache[LLGrammar] = TaggedCache(cache_bytes)  # at their start, and never moved

    def known(self, text: str, tag: str = "") -> LLGrammar | None:
        """A fresh grammar at its start, if this text has been compiled for this tag before."""
        with self._lock:
            found = self._known.get(tag, text)
        return None if found is None else found.fork()

    def compile(self, text: str, tag: str = "") -> LLGrammar:
        """A fresh grammar at its start. WorkerError 400, with llguidance's reason, when the text does not compile,
        allows nothing, or begins with what has no end."""
        found = self.known(text, tag)
        if found is not None:
            return found
        matcher = LLMatcher(self._tokenizer, LLMatcher.grammar_from_lark(text), log_level=0, limits=GRAMMAR_LIMITS)
        if matcher.is_error():
            raise _refusal(matcher.get_error())
        compiled = LLGrammar(matcher, self._size)
        ahead = compiled.try_out()
        with self._lock:
            cost = _BYTES_EACH + _BYTES_PER_CHARACTER * len(text) + _BYTES_PER_TOKEN * ahead
            self._known.put(tag, text, compiled, cost)
        return compiled.fork()


def _refusal(said: str) -> WorkerError:
    """For the compiler's own words, of which the first line is told, unless it gave itself up."""
    if said.startswith(_PANIC):
        return WorkerError(400, "grammar_too_complex", "the grammar is too large to compile", "grammar")
    if said.startswith(_NOTHING):
        return WorkerError(400, "grammar", "the grammar allows no text", "grammar")
    reason = said.split("\n", 1)[0][:500]
    is_limit = any(words in reason for words in _LIMIT_WORDS)
    return WorkerError(400, "grammar_too_complex" if is_limit else "grammar", reason, "grammar")


_TOUCH_DOWN = 3  # a number that goes on with "e+" needs a digit more


class Landing:
    """Steers a constrained reply to its end when its token limit is near, so that JSON closes instead of being cut.

    Among the allowed tokens it keeps those that close a string, an object or an array, if there are any. A reply that
    may end as it is needs no steering; only its last tokens must not open anything again, as "12" does with "12.".
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._quotes = np.array([text.startswith(b'"') and not text.strip(b'"}]') for text in vocabulary.texts])
        self._brackets = np.array([text[:1] in (b"}", b"]") and not text.strip(b'"}]') for text in vocabulary.texts])
        self._stops = np.zeros(len(vocabulary), dtype=np.bool_)
        self._stops[vocabulary.stop_ids] = True
        # Only inside a string may any letter follow; outside, a capital Q never may.
        self._letter = next((index for index, text in enumerate(vocabulary.texts) if text == b"Q"), 0)

    def steer(self, allowed: NDArray[np.bool_], left: int) -> NDArray[np.bool_]:
        """The allowed tokens that lead to the end soonest, with so many tokens left."""
        ends = allowed & self._stops
        if ends.any():
            return ends if left <= _TOUCH_DOWN and not allowed[self._letter] else allowed
        closing = allowed & (self._quotes if allowed[self._letter] else self._brackets)
        return closing if closing.any() else allowed


def landing_room(max_tokens: int) -> int:
    """How many tokens before its limit a constrained reply is steered to its end."""
    return min(128, max(16, max_tokens // 4), max_tokens)
