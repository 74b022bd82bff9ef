"""Blocks and their records, as KV memory would hand them to a tier."""

from array import array

import torch

from cacheplane.identity import Namespace, block_hash
from worker.kv.lineage import NO_LINEAGE, lineage_after
from worker.kv.record import DiskRecord
from worker.kv.shape import Block, KVShape

BLOCK = 2
SHAPE = KVShape(layers=2, kv_heads=1, head_dim=4, dtype=torch.float32)
ACME, GLOBEX = Namespace(b"a" * 32), Namespace(b"g" * 32)


def chain(
    length: int, *, namespace: Namespace = ACME, after: DiskRecord | None = None, first: int = 0
) -> list[DiskRecord]:
    """Records of `length` blocks of the tokens first, first + 1, ..., from the root or after a record."""
    records: list[DiskRecord] = []
    for start in range(first, first + length * BLOCK, BLOCK):
        tokens = array("I", range(start, start + BLOCK)).tobytes()
        begins = namespace if after is None else None
        parent = after.digest if after else None
        edge = (begins.key if begins else b"") + tokens
        lineage = lineage_after(after.lineage if after else NO_LINEAGE, edge)
        after = DiskRecord(block_hash(parent, begins, tokens), parent, edge, lineage)
        records.append(after)
    return records


def kv(seed: int, shape: KVShape = SHAPE) -> Block:
    """The tensors of one block, random in every bit, NaN and infinity among them."""
    draw = torch.Generator().manual_seed(seed)
    return tuple(
        torch.randint(0, 256, (part.nbytes,), generator=draw, dtype=torch.uint8).view(part.dtype).view(part.shape)
        for part in shape.parts(BLOCK)
    )


def same_bits(one: Block | None, other: Block) -> bool:
    """Whether both blocks have equal shapes, dtypes and bits; NaN equals NaN."""
    return one is not None and all(
        here.shape == there.shape
        and here.dtype == there.dtype
        and torch.equal(here.contiguous().view(torch.uint8), there.contiguous().view(torch.uint8))
        for here, there in zip(one, other, strict=True)
    )
