"""What a block on disk says about itself, and the order in which a tree can be grown from such records."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, repr=False)
class DiskRecord:
    """One block of one prefix, as the disk tier names it.

    digest   16 bytes, chain hash of the block; the name of its file
    parent   16 bytes, chain hash of the block before, None at the root
    edge     the node's edge (see worker/kv/radix.py): namespace key where a span begins, then little-endian u32 tokens;
             the truth that the hashes only name
    """

    digest: bytes
    parent: bytes | None
    edge: bytes

    def __repr__(self) -> str:
        return f"DiskRecord({self.digest.hex()})"  # an edge in a traceback would show a tenant's tokens and key


def parents_first(records: Iterable[DiskRecord]) -> list[DiskRecord]:
    """The records that hang, link by link, from a root, each after its parent; orphans and cycles are left out."""
    children: dict[bytes | None, list[DiskRecord]] = {}
    for record in records:
        children.setdefault(record.parent, []).append(record)
    grown = children.pop(None, [])
    for record in grown:  # it grows while we walk it
        grown += children.pop(record.digest, [])
    return grown
