"""KV memory of one worker: which prefixes it holds, where, for how long, and the tensors that hold them.

owns            radix tree by namespace; device pool, host and disk tiers and the moves between them; leases; eviction;
                the layout of running sequences, and the copies in and out
does not own    requests, batches, sampling, the wire
front door      KVMemory (open, fork, prepare, extend, close, poll, release, snapshot), KVLimits, Holding,
                Layout (SlotLayout, PagedLayout), kept_as, FolderError
"""

from worker.kv.folder import FolderError
from worker.kv.holding import Holding
from worker.kv.kinds import KINDS, kept_as
from worker.kv.layout import Layout
from worker.kv.memory import KVLimits, KVMemory
from worker.kv.pages import PagedLayout
from worker.kv.radix import Node, RadixTree
from worker.kv.shape import KVShape
from worker.kv.slots import SlotLayout

__all__ = [
    "KINDS",
    "FolderError",
    "Holding",
    "KVLimits",
    "KVMemory",
    "KVShape",
    "Layout",
    "Node",
    "PagedLayout",
    "RadixTree",
    "SlotLayout",
    "kept_as",
]
