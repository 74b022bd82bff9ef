"""Constrained decoding behind a narrow interface; llguidance does the work.

source   llguidance's Lark dialect; DESIGN 3.9
"""

from collections import OrderedDict
from threading import Lock
from typing import Protocol

import numpy as np
from llguidance import LLMatcher, LLTokenizer
from numpy.typing import NDArray

from worker.tokenizer import Vocabulary
from worker.wire import WorkerError

_CACHE_BYTES = 8 << 20


class Grammar(Protocol):
    """Where one sequence stands in its grammar."""

    def accept(self, token: int) -> bool:
        """Moves on by a token; False when the grammar does not allow it."""

    def allowed(self) -> NDArray[np.bool_]:
        """Which tokens may come next, [vocabulary]."""

    def forced(self) -> list[int]:
        """The tokens that must come next whatever the model says; often none."""

    def follow(self, tokens: list[int]) -> list[int]:
        """Those of the tokens that may come next, one after another, and what is forced behind them; stays put."""

    def rollback(self, count: int) -> None:
        """Takes back the last `count` accepted tokens."""

    @property
    def is_done(self) -> bool:
        """Whether nothing but the end may follow."""


class LLGrammar:
    """A Grammar by llguidance."""

    def __init__(self, matcher: LLMatcher, vocabulary: int) -> None:
        self._matcher = matcher
        self._vocabulary = vocabulary
        self._bits = np.zeros(-(-vocabulary // 32), dtype=np.int32)

    def accept(self, token: int) -> bool:
        return self._matcher.consume_token(token)

    def allowed(self) -> NDArray[np.bool_]:
        self._matcher.unsafe_compute_mask_ptr(self._bits.ctypes.data, self._bits.nbytes)
        return np.unpackbits(self._bits.view(np.uint8), count=self._vocabulary, bitorder="little").view(np.bool_)

    def forced(self) -> list[int]:
        return self._matcher.compute_ff_tokens()

    def follow(self, tokens: list[int]) -> list[int]:
        count = self._matcher.validate_tokens(tokens)
        if not count:
            return []
        self._matcher.consume_tokens(tokens[:count])
        forced: list[int] = self._matcher.compute_ff_tokens()
        self._matcher.rollback(count)
        return tokens[:count] + forced

    def rollback(self, count: int) -> None:
        self._matcher.rollback(count)

    @property
    def is_done(self) -> bool:
        return self._matcher.is_stopped()


class GrammarCompiler:
    """Compiles Lark text into grammars; called from threads other than the engine's.

    Compiled grammars are kept, by text, up to a total of 8 MiB of text: agents send the same tools with every turn.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._size = len(vocabulary)
        self._tokenizer = LLTokenizer(vocabulary.json, n_vocab=self._size, eos_token=vocabulary.stop_ids)
        self._lock = Lock()
        self._known: OrderedDict[str, LLMatcher] = OrderedDict()
        self._bytes = 0

    def compile(self, text: str) -> LLGrammar:
        """A fresh grammar at its start. WorkerError 400 when the text does not compile, with llguidance's reason."""
        with self._lock:
            matcher = self._known.get(text)
            if matcher is not None:
                self._known.move_to_end(text)
                return LLGrammar(matcher.deep_copy(), self._size)
        matcher = LLMatcher(self._tokenizer, LLMatcher.grammar_from_lark(text), log_level=0)
        if matcher.is_error():
            raise WorkerError(400, "grammar", matcher.get_error().split("\n", 1)[0][:500], "grammar")
        self._keep(text, matcher)
        return LLGrammar(matcher.deep_copy(), self._size)

    def _keep(self, text: str, matcher: LLMatcher) -> None:
        with self._lock:
            if text in self._known:
                return
            self._known[text] = matcher
            self._bytes += len(text)
            while self._bytes > _CACHE_BYTES:
                dropped, _ = self._known.popitem(last=False)
                self._bytes -= len(dropped)


class Landing:
    """Steers a constrained reply to its end when its token limit is near, so that JSON closes instead of being cut.

    Among the allowed tokens it keeps those that close a string, an object or an array, if there are any. A reply that
    may end as it is needs no steering.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._quotes = np.array([text.startswith(b'"') and not text.strip(b'"}]') for text in vocabulary.texts])
        self._brackets = np.array([text[:1] in (b"}", b"]") and not text.strip(b'"}]') for text in vocabulary.texts])
        self._stops = np.zeros(len(vocabulary), dtype=np.bool_)
        self._stops[vocabulary.stop_ids] = True
        # Only inside a string may any letter follow; outside, a capital Q never may.
        self._letter = next((index for index, text in enumerate(vocabulary.texts) if text == b"Q"), 0)

    def steer(self, allowed: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """The allowed tokens that lead to the end soonest."""
        if (allowed & self._stops).any():
            return allowed
        closing = allowed & (self._quotes if allowed[self._letter] else self._brackets)
        return closing if closing.any() else allowed


def landing_room(max_tokens: int) -> int:
    """How many tokens before its limit a constrained reply is steered to its end."""
    return min(128, max(16, max_tokens // 4), max_tokens)
