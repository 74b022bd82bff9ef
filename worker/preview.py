"""What a reply would go on with by the logits of another model."""

from worker.allowed import Continuations
from worker.grammar import Grammar, GrammarLimitError
from worker.sampler import Logits, LogitsError, Sampler


class Preview:
    """Token by token from where a reply is, which itself stays there.

    It has the reply's own randomness at each position, so that like distributions choose alike at any temperature, and
    keeps to its grammar. Penalties don't count the tokens that it has chosen itself.

    sampler    the reply's
    grammar    where the reply is in its grammar, of which this is the only user; None without one
    position   tokens that the reply has generated
    stop_ids   tokens that end it, before `least` tokens none
    """

    def __init__(
        self, sampler: Sampler, grammar: Grammar | None, position: int, stop_ids: set[int], least: int
    ) -> None:
        self._sampler = sampler
        self._grammar = grammar
        self._position = position
        self._stop_ids = stop_ids
        self._least = least

    def take(self, logits: Logits) -> list[int]:
        """The next token by the logits [vocabulary], and those that the grammar forces behind it; none at its end."""
        try:
            token = self._sampler.pick(logits, self._position, self._allowed(len(logits)))
            if token is None or token in self._stop_ids:
                return []
            tokens = [token, *self._moved_on(token)]
        except (GrammarLimitError, LogitsError):  # of a reply that may never come to be
            return []
        self._position += len(tokens)
        return tokens

    def _allowed(self, size: int) -> Continuations | None:
        goes_on = self._position < self._least
        if self._grammar is None and not goes_on:
            return None
        return Continuations(self._grammar, size, self._stop_ids if goes_on else ())

    def _moved_on(self, token: int) -> list[int]:
        """What the grammar forces behind a token."""
        if self._grammar is None or not self._grammar.accept(token) or self._grammar.is_done:
            return []
        forced = self._grammar.forced()
        taken = 0
        while taken < len(forced) and self._grammar.accept(forced[taken]):
            taken += 1
        return forced[:taken]
