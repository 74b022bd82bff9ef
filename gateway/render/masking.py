"""Control tokens in what clients write are text: hidden while the template is rendered, put back afterwards."""

import re
import secrets
from typing import Any


class Mask:
    """Hides the control tokens in client strings for one rendering.

    The placeholder holds a random number, so no client can write one; it is letters and digits, so no JSON escaping
    changes it.
    """

    def __init__(self, controls: re.Pattern[str]) -> None:
        self._controls = controls
        self._nonce = ""
        self._hidden: list[str] = []

    def over(self, value: Any) -> Any:
        """A copy of a JSON value with the control tokens of its strings and keys hidden."""
        if isinstance(value, str):
            return self._controls.sub(self._hide, value) if self._controls.search(value) else value
        if isinstance(value, dict):
            return {self.over(key): self.over(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self.over(inner) for inner in value]
        return value

    def off(self, text: str) -> str:
        """Rendered text with what was hidden in it back."""
        if not self._hidden:
            return text
        return re.sub(f"{self._nonce}x([0-9]+)x", lambda match: self._hidden[int(match[1])], text)

    def _hide(self, match: re.Match[str]) -> str:
        if not self._nonce:
            self._nonce = "saltway" + secrets.token_hex(16)
        self._hidden.append(match[0])
        return f"{self._nonce}x{len(self._hidden) - 1}x"
