"""KV memory of one worker: which prefixes it holds, where, for how long, and the tensors that hold them.

owns            radix tree by namespace; device pool, host and disk tiers and the moves between them; leases; eviction;
                slots and the copies in and out
does not own    requests, batches, sampling, the wire
front door      KVMemory (open, extend, close, poll, release, snapshot), KVLimits, Holding, Slots, BlockPool
"""

from worker.kv.holding import Holding
from worker.kv.memory import KVLimits, KVMemory
from worker.kv.pool import BlockPool
from worker.kv.radix import Node, RadixTree
from worker.kv.slots import KVShape, Slots

__all__ = ["BlockPool", "Holding", "KVLimits", "KVMemory", "KVShape", "Node", "RadixTree", "Slots"]
