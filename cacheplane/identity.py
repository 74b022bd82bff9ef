"""Cache identity: who may share KV (scope, salt, namespace) and what a block is called (chain).

The same identity goes through routing, events and every cache tier; there is no second key format.

Hash for routing, tokens for truth. XXH3 is fast and collides on purpose-made input, even under a secret
seed (xxHash issue 1127), so a block hash may only choose a worker. Whoever reuses KV compares the
namespace and the token ids first.
"""

import hashlib
import hmac
import struct
import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Final, Literal, Self, get_args

import numpy as np
import xxhash
from numpy.typing import NDArray

BLOCK_TOKENS: Final = 16
HASH_BYTES: Final = 16
KEY_BYTES: Final = 32
TOKEN_BYTES: Final = 4

_MIN_SECRET_BYTES: Final = 16
_MAX_SCOPE_ID: Final = 256
_AT_ONCE: Final = 256  # blocks cut, or hashes made into keys, by one call
_ONE: Final = np.uint64(1)

ScopeKind = Literal["tenant", "group", "public"]


@dataclass(frozen=True, slots=True)
class Scope:
    """Who may share cached blocks: one tenant, tenants that agreed to (a group), or everyone.

    kind     "tenant" and "group" carry an id; "public" is one scope and has none
    errors   ValueError for another kind, a missing id, or an id beyond 256 characters
    """

    kind: ScopeKind
    id: str = ""

    def __post_init__(self) -> None:
        if self.kind not in get_args(ScopeKind):
            raise ValueError(f"unknown scope kind {self.kind!r}")
        if (self.kind == "public") != (self.id == ""):
            raise ValueError("a tenant or group scope needs an id, the public scope has none")
        if len(self.id) > _MAX_SCOPE_ID:
            raise ValueError(f"scope id is longer than {_MAX_SCOPE_ID} characters")

    def __str__(self) -> str:
        return f"{self.kind}:{self.id}" if self.id else self.kind

    @classmethod
    def parse(cls, text: str) -> Self:
        """The inverse of `str`: "tenant:acme", "group:partners", "public"."""
        kind, _, name = text.partition(":")
        if str(scope := cls(kind, name)) != text:  # type: ignore[arg-type]  # the kind is checked when made
            raise ValueError(f"not a scope: {text!r}")
        return scope


def derive_salt(secret: bytes, scope: Scope, epoch: int) -> bytes:
    """The 32-byte salt of a scope in one epoch; another epoch makes every older block unreachable.

    secret   the installation's master secret, at least 16 bytes
    epoch    0 or more, kept per scope
    source   HMAC-SHA256 (RFC 2104) over typed, length-prefixed parts
    """
    if len(secret) < _MIN_SECRET_BYTES:
        raise ValueError(f"the master secret is shorter than {_MIN_SECRET_BYTES} bytes")
    if epoch < 0:
        raise ValueError("a salt epoch is never negative")
    message = _parts(domain="saltway.salt.v1", kind=scope.kind, id=scope.id, epoch=epoch)
    return hmac.digest(secret, message, hashlib.sha256)


def _parts(**fields: str | int) -> bytes:
    """Named, typed, length-prefixed parts: no two different sets of fields give the same bytes."""
    return b"".join(_field(name.encode()) + _value(value) for name, value in fields.items())


def _value(value: str | int) -> bytes:
    if isinstance(value, int):
        return b"i" + struct.pack(">Q", value)
    return b"s" + _field(value.encode())


def _field(raw: bytes) -> bytes:
    return struct.pack(">I", len(raw)) + raw


@dataclass(frozen=True, slots=True)
class Namespace:
    """The key under which blocks can be found at all: equal tokens under other keys never match.

    key   32 bytes; as secret as the salt it was made from, so it stays out of logs and events
    """

    key: bytes

    def __post_init__(self) -> None:
        if len(self.key) != KEY_BYTES:
            raise ValueError(f"a namespace key has {KEY_BYTES} bytes, not {len(self.key)}")

    @classmethod
    def derive(cls, *, salt: bytes, model: str, adapter: str = "", kv_dtype: str, sub: str = "") -> Self:
        """Everything that makes cached KV differ though the tokens are the same.

        salt     32 bytes, from `derive_salt`
        model    a revision or fingerprint, not a display name
        sub      a client's own division inside its tenant; it narrows sharing and can never widen it
        source   BLAKE2b-256 (RFC 7693) keyed with the salt, over typed, length-prefixed parts
        """
        if len(salt) != KEY_BYTES:
            raise ValueError(f"a salt has {KEY_BYTES} bytes, not {len(salt)}")
        parts = _parts(domain="saltway.namespace.v1", model=model, adapter=adapter, kv_dtype=kv_dtype, sub=sub)
        return cls(hashlib.blake2b(parts, key=salt, digest_size=KEY_BYTES).digest())

    @classmethod
    def from_hex(cls, text: str) -> Self:
        """The inverse of `hex`; ValueError unless `text` is exactly 64 hex digits."""
        if len(text) != 2 * KEY_BYTES:  # bytes.fromhex alone would skip white space
            raise ValueError(f"a namespace has {2 * KEY_BYTES} hex digits")
        return cls(bytes.fromhex(text))

    @property
    def hex(self) -> str:
        """64 lower-case hex digits."""
        return self.key.hex()

    def __repr__(self) -> str:
        return "Namespace(...)"  # a key in a traceback would let its reader name a tenant's blocks


@dataclass(frozen=True, slots=True)
class Span:
    """From token `start` on, blocks belong to `namespace`; a start after 0 is a barrier."""

    start: int
    namespace: Namespace


def token_words(tokens: Sequence[int]) -> "array[int]":
    """Token ids as unsigned 32-bit words of this machine; ValueError outside 0..2**32-1.

    Reading integers takes two thirds of the time of naming their blocks, so they are read once: words are passed on as
    they are, and whoever makes a prompt of pieces keeps these as words.
    """
    if isinstance(tokens, array) and tokens.typecode == "I":
        return tokens
    words = array("I")
    try:
        words.fromlist(tokens if isinstance(tokens, list) else list(tokens))  # in 0.7 of the time of array("I", tokens)
    except (OverflowError, TypeError) as error:
        raise ValueError("token ids are integers of 32 bits without a sign") from error
    return words


def pack_tokens(tokens: Sequence[int]) -> bytes:
    """Token ids as little-endian u32, the form that is hashed; ValueError outside 0..2**32-1."""
    return _little_endian(token_words(tokens)).tobytes()


def _little_endian(words: "array[int]") -> "array[int]":
    if sys.byteorder == "big":
        words = words[:]
        words.byteswap()
    return words


def keys_of(hashes: Sequence[bytes]) -> NDArray[np.uint64]:
    """The 64 bits of each hash by which the index knows a block: its first eight bytes, little-endian, never 0.

    A shorter hash, as some engines send, counts as if it ended in zero bytes.
    """
    if len(hashes) <= _AT_ONCE:
        return _never_0(np.frombuffer(_first_eight(hashes), "<u8"))
    packed = [_first_eight(hashes[at : at + _AT_ONCE]) for at in range(0, len(hashes), _AT_ONCE)]
    return _never_0(np.frombuffer(b"".join(packed), "<u8"))


def key_of(name: bytes) -> int:
    """The same for one hash, as a signed integer."""
    return int.from_bytes(name[:8].ljust(8, b"\0"), "little", signed=True) or 1


def _first_eight(hashes: Sequence[bytes]) -> bytes:
    """Of each, filled up with zeros; in a quarter of the time that it takes to look at every length."""
    return _row_of(len(hashes), 8).pack(*hashes)


@lru_cache(maxsize=4 * _AT_ONCE)
def _row_of(count: int, width: int) -> struct.Struct:
    """So many strings of so many bytes, one behind the other."""
    return struct.Struct(f"{width}s" * count)


def _never_0(keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """0 means "no block" in a table of keys; there hardly ever is one."""
    return keys if np.count_nonzero(keys) == len(keys) else np.maximum(keys, _ONE)


def block_hash(parent: bytes | None, namespace: Namespace | None, tokens: bytes) -> bytes:
    """One link of the chain.

    parent      hash of the block before, None at the root
    namespace   given at the root and at the first block of a later span (a barrier), else None
    tokens      little-endian u32 bytes of exactly one block
    returns     16 bytes: xxh3_128 of namespace key (if given), parent (if any), tokens
    errors      ValueError when a root has no namespace: it would be shared by everyone
    """
    if parent is None and namespace is None:
        raise ValueError("the first block of a chain needs a namespace")
    head = namespace.key if namespace else b""
    return xxhash.xxh3_128_digest(head + (parent or b"") + tokens)


@dataclass(frozen=True)
class BlockChain:
    """Hashes of the full blocks of one prompt, in order; a hash commits to every token before it.

    hashes       16 bytes per full block; the tail below one block has none
    block_size   tokens per block, a power of two
    keys         uint64[len(hashes)], 64 bits of each hash, for the index; not to be written to
    """

    hashes: tuple[bytes, ...]
    block_size: int

    @classmethod
    def of(cls, tokens: Sequence[int], spans: Namespace | Sequence[Span], block_size: int = BLOCK_TOKENS) -> Self:
        """The chain of `tokens`, under one namespace or under spans divided by barriers.

        tokens   any ids; `token_words` of them are not read again
        errors   ValueError for a bad block size, spans that do not start at 0, are not strictly
                 increasing or are off a block boundary, or a token id outside u32
        """
        if block_size < 1 or block_size & (block_size - 1):
            raise ValueError("a block size is a power of two")
        spans = [Span(0, spans)] if isinstance(spans, Namespace) else spans
        _check(spans, block_size)
        words = _little_endian(token_words(tokens))
        blocks = len(words) // block_size
        bounds = [min(span.start // block_size, blocks) for span in spans] + [blocks]
        hashes: list[bytes] = []
        for span, (start, stop) in zip(spans, pairwise(bounds), strict=True):
            head = span.namespace.key + (hashes[-1] if hashes else b"")
            hashes += _links(head, words, block_size * TOKEN_BYTES, start, stop)
        return cls(tuple(hashes), block_size)

    @cached_property
    def keys(self) -> NDArray[np.uint64]:
        return keys_of(self.hashes)

    @property
    def tokens(self) -> int:
        """Tokens that the chain names: full blocks only."""
        return len(self.hashes) * self.block_size

    def __len__(self) -> int:
        return len(self.hashes)


def _check(spans: Sequence[Span], block_size: int) -> None:
    if not spans or spans[0].start != 0:
        raise ValueError("the first span starts at token 0")
    if any(span.start % block_size for span in spans):
        raise ValueError("a span starts at a block boundary")
    if any(later.start <= earlier.start for earlier, later in pairwise(spans)):
        raise ValueError("spans start at strictly increasing tokens")


def _links(head: bytes, words: "array[int]", width: int, start: int, stop: int) -> list[bytes]:
    """The chain of one span, blocks `start` to `stop` - 1 of `width` bytes; `head` is what its first one commits to."""
    # One call of struct cuts many blocks: slicing in the loop took three times as long for a 32k-token prompt,
    # iter_unpack twice. Cut some at a time, they stay in the processor's cache.
    digest = xxhash.xxh3_128_digest
    pieces = (
        _row_of(min(_AT_ONCE, stop - at), width).unpack_from(words, at * width) for at in range(start, stop, _AT_ONCE)
    )
    return [head := digest(head + block) for piece in pieces for block in piece]
