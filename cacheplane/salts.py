"""Salts that are given to engines that are not ours, and the namespaces that they stand for."""

import hashlib
from collections import OrderedDict
from typing import Final

from cacheplane.identity import Namespace

MAX_SALTS: Final = 65_536

_PERSON: Final = b"saltway.engine"
_SALT_BYTES: Final = 16


class EngineSalts:
    """What a request carries as `cache_salt`, and the way back, by which events of an engine find their namespace.

    A salt commits to the namespace and does not reveal it: engines publish salts in the clear (vLLM's extra keys).

    Bound: the `max_salts` used last. Blocks under one that was forgotten are counted by whoever asks, not guessed.
    """

    def __init__(self, max_salts: int = MAX_SALTS) -> None:
        self._max_salts = max_salts
        self._namespaces: OrderedDict[str, Namespace] = OrderedDict()

    def __len__(self) -> int:
        return len(self._namespaces)

    def give(self, namespace: Namespace) -> str:
        """The salt of a namespace, 32 hex digits, remembered from now on."""
        salt = hashlib.blake2b(key=namespace.key, digest_size=_SALT_BYTES, person=_PERSON).hexdigest()
        self._namespaces[salt] = namespace
        self._namespaces.move_to_end(salt)
        if len(self._namespaces) > self._max_salts:
            self._namespaces.popitem(last=False)
        return salt

    def namespace(self, salt: str) -> Namespace | None:
        """None for a salt that was not given, or is forgotten."""
        return self._namespaces.get(salt)
