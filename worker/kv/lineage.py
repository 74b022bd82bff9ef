"""What a block hangs from, in 32 bytes that nobody can forge: the name of a whole path on disk.

A chain hash is made for speed, and two paths can be made that share one (cacheplane/identity.py). In memory that does
no harm, since the tree compares tokens from the root on. A file holds the tokens of its own block only, so it also
carries the lineage, which commits to the namespace and to every token before.
"""

import hashlib
from typing import Final

from worker.kv.radix import Node

LINEAGE_BYTES: Final = 32
NO_LINEAGE: Final = b""  # of the root, which is no block
_PERSON: Final = b"saltway.lineage"
_MARK: Final = 16  # blocks


def lineage_after(parent: bytes, edge: bytes) -> bytes:
    """The lineage of a block under a parent; an edge at a root begins with its namespace's key.

    source   BLAKE2b-256 (RFC 7693); lineage and edge of a block have fixed lengths, so that no two pairs are one text
    """
    return hashlib.blake2b(parent + edge, digest_size=LINEAGE_BYTES, person=_PERSON).digest()


def lineage_of(node: Node) -> bytes:
    """The lineage of a node, worked out from the nearest node above that is marked with its own.

    Each block would else carry 65 bytes for it. Every sixteenth of the path is marked on the way, so that each block
    costs sixteen short hashes at most, however long the path.
    """
    way: list[Node] = []
    while node.parent is not None and node.lineage is None:
        way.append(node)
        node = node.parent
    lineage = node.lineage or NO_LINEAGE
    for count, step in enumerate(reversed(way), 1):
        lineage = lineage_after(lineage, step.edge)
        if count % _MARK == 0:
            step.lineage = lineage
    return lineage
