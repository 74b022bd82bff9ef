"""KV memory of one worker: which prefixes it holds, and the tensors that hold them.

owns            block pool and its books, radix tree by namespace, LRU eviction, slots and the copies between the two
does not own    requests, batches, sampling, the wire
front door      KVMemory (match, store, close, snapshot), Slots, BlockPool, RadixTree
"""

from worker.kv.memory import Holding, KVMemory
from worker.kv.pool import BlockPool
from worker.kv.radix import Node, RadixTree
from worker.kv.slots import Slots

__all__ = ["BlockPool", "Holding", "KVMemory", "Node", "RadixTree", "Slots"]
