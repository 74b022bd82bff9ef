"""Typed reading of a model's description, whether JSON or GGUF metadata."""

from collections.abc import Mapping
from typing import Any

from worker.weights.errors import ModelError

_MAX_SIZE = 1 << 20


class Fields:
    """Values by key, some perhaps of a wrong type. Every refusal is a ModelError that names the key.

    where   how messages call the place: "metadata", "config.json"
    A value that is null is as good as absent. `default` None makes a key required.
    """

    def __init__(self, values: Mapping[str, Any], where: str, prefix: str = "") -> None:
        self._values = values
        self._where = where
        self._prefix = prefix

    def __contains__(self, key: str) -> bool:
        return self._values.get(self._prefix + key) is not None

    def integer(self, key: str, default: int | None = None) -> int:
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.refusal(key, f"is {_shown(value)}, not an integer")
        return value

    def size(self, key: str, default: int | None = None) -> int:
        """An integer from 1 to 2^20: memory and loops may be as long as it says."""
        value = self.integer(key, default)
        if not 1 <= value <= _MAX_SIZE:
            raise self.refusal(key, f"is {value}; from 1 to {_MAX_SIZE} is possible")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not -1e30 < value < 1e30:
            raise self.refusal(key, f"is {_shown(value)}, not a number")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        value = self._get(key, default)
        if not isinstance(value, bool):
            raise self.refusal(key, f"is {_shown(value)}, not true or false")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        value = self._get(key, default)
        if not isinstance(value, str):
            raise self.refusal(key, f"is {_shown(value)}, not text")
        return value

    def texts(self, key: str) -> list[str]:
        value = self._get(key, None)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.refusal(key, "is not a list of texts")
        return value

    def integers(self, key: str) -> list[int]:
        """Nothing when the key is absent."""
        value = self._get(key, [])
        if not isinstance(value, list) or not all(type(item) is int for item in value):
            raise self.refusal(key, "is not a list of integers")
        return value

    def numbers(self, key: str) -> list[float]:
        """Nothing when the key is absent."""
        value = self._get(key, [])
        if not isinstance(value, list) or not all(type(item) in (int, float) for item in value):
            raise self.refusal(key, "is not a list of numbers")
        return value

    def fields(self, key: str) -> "Fields":
        """What lies below a key; nothing when it is absent."""
        value = self._get(key, {})
        if not isinstance(value, dict):
            raise self.refusal(key, f"is {_shown(value)}, not an object")
        return Fields(value, f"{self._where} {self._prefix}{key}")

    def is_null(self, key: str) -> bool:
        """Whether the key is there and says null."""
        return self._values.get(self._prefix + key, ...) is None

    def holds_objects(self) -> bool:
        return any(isinstance(value, dict) for value in self._values.values())

    def refusal(self, key: str, why: str) -> ModelError:
        return ModelError(f"{self._where} {self._prefix}{key} {why}")

    def _get(self, key: str, default: object) -> Any:
        value = self._values.get(self._prefix + key)
        if value is None:
            value = default
        if value is None:
            raise self.refusal(key, "is missing")
        return value


def _shown(value: object) -> str:
    return repr(value)[:60]
