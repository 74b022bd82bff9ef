"""Which tokens a reply may go on with."""

from collections.abc import Callable, Collection
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from worker.grammar import Grammar

Mask = NDArray[np.bool_]


class Allowed(Protocol):
    """Asked of one token, which takes microseconds, or of all, which takes up to a millisecond inside a string."""

    def permits(self, token: int) -> bool:
        """Whether it may come; False also where only `mask` can tell."""

    def mask(self) -> Mask:
        """[vocabulary]"""


class Continuations:
    """What a grammar and the rules of a reply's end leave.

    grammar   where the reply is in it; None where any token may come
    size      tokens of the vocabulary
    banned    tokens that may not come unless nothing else may
    steer     narrows the mask down further; None where it needs no steering

    GrammarLimitError from both questions when they can't be answered in bounded time.
    """

    def __init__(
        self,
        grammar: Grammar | None,
        size: int,
        banned: Collection[int] = (),
        steer: Callable[[Mask], Mask] | None = None,
    ) -> None:
        self._grammar = grammar
        self._size = size
        self._banned = banned
        self._steer = steer

    def permits(self, token: int) -> bool:
        if self._steer is not None or token in self._banned:
            return False
        return self._grammar is None or self._grammar.permits(token)

    def mask(self) -> Mask:
        allowed = np.ones(self._size, dtype=np.bool_) if self._grammar is None else self._grammar.allowed()
        if self._banned:
            more = allowed.copy()
            more[list(self._banned)] = False
            allowed = more if more.any() else allowed
        return allowed if self._steer is None else self._steer(allowed)
