"""The file of one block: how KV and its name become bytes, and when bytes may become KV again."""

import math
import struct
import sys
from typing import Final

import numpy as np
import torch
import xxhash

from cacheplane.identity import HASH_BYTES, KEY_BYTES, TOKEN_BYTES
from worker.kv.lineage import LINEAGE_BYTES
from worker.kv.record import DiskRecord
from worker.kv.shape import Block, KVShape
from worker.kv.staging import Image

_MAGIC: Final = b"SALTWKV\x00"
_VERSION: Final = 2  # 1 had no lineage
# digest, parent, whether there is one, lineage, bytes of edge
_LINK: Final = struct.Struct(f"<{HASH_BYTES}s{HASH_BYTES}s?{LINEAGE_BYTES}sH")
_ALIGN: Final = 64  # tensors are viewed in place


class BlockFile:
    """The format; every file of one model has the same size.

    head       magic, u16 length of the text, the text (version, byte order, dtype, dimensions, fingerprint), digest,
               parent, u8 whether there is a parent, lineage, u16 length of the edge, edge, xxh3_128 of all that, zeros
    payload    the tensors of KVShape.parts one after another, raw
    checksum   xxh3_128 of everything before

    The head follows from the model and the record alone, so one comparison of bytes checks magic, version, model,
    dimensions, digest, parent, lineage, namespace and tokens. Checksums find damage; they don't stop an author of
    forgeries, who would need the worker's own account.
    """

    def __init__(self, shape: KVShape, block_size: int, fingerprint: str) -> None:
        dimensions = (shape.layers, shape.kv_heads, shape.head_dim, block_size)
        stored = shape.codes or shape.dtype
        text = " ".join(map(str, (_VERSION, sys.byteorder, stored, *dimensions, fingerprint))).encode()
        self._preamble = _MAGIC + struct.pack("<H", len(text)) + text
        self._edges = (TOKEN_BYTES * block_size, KEY_BYTES + TOKEN_BYTES * block_size)
        self._shape, self._block_size = shape, block_size
        self._parts = shape.parts(block_size)
        used = len(self._preamble) + _LINK.size + self._edges[-1] + HASH_BYTES
        self.head_size = math.ceil(used / _ALIGN) * _ALIGN
        self.size = self.head_size + shape.bytes_per_token * block_size + HASH_BYTES

    def check(self, record: DiskRecord) -> None:
        """ValueError unless digest, parent, lineage and edge have the lengths that a block of this model has."""
        if len(record.digest) != HASH_BYTES or len(record.parent or record.digest) != HASH_BYTES:
            raise ValueError(f"a chain digest has {HASH_BYTES} bytes")
        if len(record.lineage) != LINEAGE_BYTES:
            raise ValueError(f"a lineage has {LINEAGE_BYTES} bytes")
        if len(record.edge) not in self._edges:
            raise ValueError(f"an edge has {self._edges[0]} or {self._edges[1]} bytes, not {len(record.edge)}")

    def head(self, record: DiskRecord) -> bytes:
        """The only head that the file of this record can have; ValueError as in `check`."""
        self.check(record)
        parent = record.parent or bytes(HASH_BYTES)
        link = _LINK.pack(record.digest, parent, record.parent is not None, record.lineage, len(record.edge))
        raw = self._preamble + link + record.edge
        return (raw + xxhash.xxh3_128_digest(raw)).ljust(self.head_size, b"\x00")

    def parse(self, head: bytes) -> DiskRecord | None:
        """The record that has this head; None when no record of this model has it."""
        start = len(self._preamble)
        if len(head) != self.head_size or not head.startswith(self._preamble):
            return None
        digest, parent, linked, lineage, length = _LINK.unpack_from(head, start)
        edge = head[start + _LINK.size : start + _LINK.size + length]
        record = DiskRecord(digest, parent if linked else None, edge, lineage)
        return record if length in self._edges and self.head(record) == head else None

    def fill(self, image: Image, record: DiskRecord, block: Block) -> None:
        """Writes all but the checksum; on return the tensors are copied, whatever their device or strides.

        errors   ValueError for tensors that are not a block of this model
        """
        self._shape.expect(block, self._block_size)
        image[: self.head_size] = np.frombuffer(self.head(record), np.uint8)
        for view, part in zip(self._payload(image), block, strict=True):
            view.copy_(part)

    def seal(self, image: Image) -> None:
        """Writes the checksum."""
        image[-HASH_BYTES:] = np.frombuffer(xxhash.xxh3_128_digest(image[:-HASH_BYTES].data), np.uint8)

    def open(self, image: Image, record: DiskRecord) -> Block | None:
        """The block as views of the image; None unless every byte is what `record` and the checksum say."""
        if image[: self.head_size].tobytes() != self.head(record):
            return None
        if image[-HASH_BYTES:].tobytes() != xxhash.xxh3_128_digest(image[:-HASH_BYTES].data):
            return None
        return self._payload(image)

    def _payload(self, image: Image) -> Block:
        raw = torch.from_numpy(image[self.head_size : -HASH_BYTES])
        pieces = torch.split(raw, [part.nbytes for part in self._parts])
        return tuple(piece.view(part.dtype).view(part.shape) for piece, part in zip(pieces, self._parts, strict=True))
