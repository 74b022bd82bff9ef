"""What a block on disk says about itself, and the order in which a tree can be grown from such records."""

from collections.abc import Iterable
from dataclasses import dataclass

from worker.kv.lineage import NO_LINEAGE, lineage_after, lineage_of
from worker.kv.radix import Node


@dataclass(frozen=True, slots=True, repr=False)
class DiskRecord:
    """One block of one prefix, as the disk tier names it.

    digest    16 bytes, chain hash of the block; the name of its file
    parent    16 bytes, chain hash of the block before, None at the root
    edge      the node's edge (see worker/kv/radix.py): namespace key where a span begins, then little-endian u32 tokens
    lineage   32 bytes that commit to the edges of the whole path (worker/kv/lineage.py): with the edge, the truth that
              the chain hashes only name
    """

    digest: bytes
    parent: bytes | None
    edge: bytes
    lineage: bytes

    def follows(self, lineage: bytes) -> bool:
        """Whether this block is a child of the one of that lineage."""
        return self.lineage == lineage_after(lineage, self.edge)

    def __repr__(self) -> str:
        return f"DiskRecord({self.digest.hex()})"  # an edge in a traceback would show a tenant's tokens and key


def parents_first(records: Iterable[DiskRecord]) -> list[DiskRecord]:
    """The records that hang, link by link, from a root, each after its parent; orphans and cycles are left out.

    A link counts when the child's lineage follows from its parent's: under a digest that two paths share there may be
    the file of the other one.
    """
    children: dict[bytes | None, list[DiskRecord]] = {}
    for record in records:
        children.setdefault(record.parent, []).append(record)
    grown = [record for record in children.pop(None, []) if record.follows(NO_LINEAGE)]
    for record in grown:  # it grows while we walk it
        grown += [child for child in children.pop(record.digest, []) if child.follows(record.lineage)]
    return grown


def record_of(node: Node) -> DiskRecord:
    """The node as the disk tier names it."""
    assert node.parent is not None
    return DiskRecord(node.digest, node.parent.digest or None, node.edge, lineage_of(node))
