"""The content of prompts' blocks under no salt: the same for all tenants, under numbers that nobody knows."""

import hashlib
import secrets
from array import array
from typing import Final

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.uint64]

MAX_BLOCKS: Final = 16_384  # of one prompt, 128 KiB of keys
_SECRET_BYTES: Final = 32


class Contents:
    """Keys of the blocks of a prompt; a key commits to every token before its end.

    secret   drawn anew in each process, unless a test gives it
    Key      every token times a secret number of its place in its block, and one number more, times one of its block,
             summed modulo 2**64 (multilinear hashing: Carter and Wegman 1979). It takes a third of the time of a chain
             of hashes and is good for comparing only: two prompts share one by chance, once in 2**40 or more rarely.
             Its high bits depend on every bit of every token, its low bits on low bits alone.
    """

    def __init__(self, secret: bytes | None = None) -> None:
        self._secret = secret or secrets.token_bytes(_SECRET_BYTES)
        self._of_block = self._numbers(b"block", MAX_BLOCKS)
        self._of_any = self._numbers(b"any", 1)  # so that a block of zeros is something too
        self._of_place: dict[int, Keys] = {}  # by block size

    def keys(self, words: "array[int]", block_size: int) -> Keys:
        """uint64[full blocks], at most MAX_BLOCKS; `words` as `token_words` gives them."""
        count = min(len(words) // block_size, MAX_BLOCKS)
        tokens = np.frombuffer(words, np.uint32, count * block_size).reshape(count, block_size)
        if (places := self._of_place.get(block_size)) is None:
            places = self._of_place[block_size] = self._numbers(b"place", block_size)
        keys: Keys = ((tokens @ places + self._of_any) * self._of_block[:count]).cumsum()
        return keys

    def _numbers(self, purpose: bytes, count: int) -> Keys:
        """SHAKE-256 (FIPS 202) of the secret, so that they are the same whichever thread draws them."""
        return np.frombuffer(hashlib.shake_256(self._secret + purpose).digest(8 * count), np.uint64)
