"""KV memory: finds the prefix that a sequence can reuse, keeps what it computes, and says so in events."""

from array import array
from collections.abc import Sequence
from typing import TypeAlias

from cacheplane.identity import Namespace, Span, block_hash
from cacheplane.wire import AllBlocksCleared, BlockRemoved, BlockStored, Event, SnapshotBlock, Tier
from worker.kv.pool import BlockPool
from worker.kv.radix import Node, RadixTree
from worker.kv.slots import Slots

Tokens: TypeAlias = "array[int]"  # array("I"): token ids as unsigned 32-bit integers


class Holding:
    """What one running sequence holds in KV memory: its slot, and the node of the tree that it stands on.

    reused    tokens whose KV was copied in at the start
    stored    full blocks of this sequence that are in the tree
    storing   False once a block could not be stored; the sequence goes on from its slot, but its later blocks would
              have no parent
    """

    __slots__ = ("namespaces", "node", "reused", "slot", "stored", "storing")

    def __init__(self, slot: int, node: Node, namespaces: dict[int, Namespace], *, storing: bool) -> None:
        self.slot = slot
        self.node = node
        self.namespaces = namespaces
        self.reused = 0
        self.stored = 0
        self.storing = storing


class KVMemory:
    """The radix tree, the block pool and the slots, kept in step.

    Only the engine's thread calls it, between forward passes: a block is filled by copying from a slot whose positions
    are already computed, so a node in the tree always has its KV.
    """

    def __init__(self, slots: Slots, pool: BlockPool, *, spoil_freed: bool = False) -> None:
        self.slots = slots
        self.pool = pool
        self.tree = RadixTree()
        self._spoil_freed = spoil_freed
        self._events: list[Event] = []

    @property
    def block_size(self) -> int:
        return self.slots.block_size

    def open(self, tokens: Tokens, spans: Sequence[Span], *, store: bool = True) -> Holding | None:
        """Gives a sequence a slot that begins with the longest known prefix of tokens; None when all slots are busy.

        At least one token is left to compute, since its logits are wanted.
        """
        slot = self.slots.take()
        if slot is None:
            return None
        namespaces = {span.start: span.namespace for span in spans}
        reusable = (len(tokens) - 1) // self.block_size
        path = self.tree.match([self._edge(tokens, namespaces, index)[0] for index in range(reusable)])
        holding = Holding(slot, path[-1] if path else self.tree.root, namespaces, storing=store)
        self.tree.hold(holding.node)
        self.slots.copy_in(slot, [node.block for node in path])
        holding.stored = len(path)
        holding.reused = len(path) * self.block_size
        return holding

    def extend(self, holding: Holding, tokens: Tokens, computed: int) -> None:
        """Stores the full blocks among the first `computed` tokens that are not in the tree yet."""
        while holding.storing and (holding.stored + 1) * self.block_size <= computed:
            edge, namespace = self._edge(tokens, holding.namespaces, holding.stored)
            node = self.tree.child(holding.node, edge) or self._store(holding, edge, namespace)
            if node is None:
                holding.storing = False
                return
            self.tree.hold(node)
            self.tree.drop(holding.node)
            holding.node = node
            holding.stored += 1

    def close(self, holding: Holding) -> None:
        """The sequence has ended: its slot is free, its blocks stay until they are evicted."""
        self.tree.drop(holding.node)
        self.slots.give_back(holding.slot)

    def release(self, tokens: Tokens, spans: Sequence[Span]) -> int:
        """The owner will not come back to this prefix: its blocks go first when room is needed. Returns how many."""
        namespaces = {span.start: span.namespace for span in spans}
        count = len(tokens) // self.block_size
        path = self.tree.match([self._edge(tokens, namespaces, index)[0] for index in range(count)])
        self.tree.age(path)
        return len(path)

    def clear(self) -> None:
        """Forgets every block that no running sequence stands on."""
        while self._evict("cleared"):
            pass
        if not len(self.tree):
            self._events.append(AllBlocksCleared())

    def take_events(self) -> list[Event]:
        """What was stored and removed since the last call, in order."""
        events, self._events = self._events, []
        return events

    def snapshot(self) -> list[SnapshotBlock]:
        """Every block, parents before children; consistent with the events taken so far when those were taken last."""
        return [
            SnapshotBlock(node.digest, node.parent.digest or None if node.parent else None, Tier.DEVICE)
            for node in self.tree.walk()
        ]

    def check(self) -> None:
        """The books of tree and pool; RuntimeError when they do not balance. For tests, and when idle."""
        self.pool.check()
        self.tree.check()
        blocks = {node.block for node in self.tree.walk()}
        if len(blocks) != len(self.tree) or len(blocks) != self.pool.total - self.pool.free:
            raise RuntimeError("KV memory: blocks in the tree and blocks in use differ")

    def _edge(self, tokens: Tokens, namespaces: dict[int, Namespace], index: int) -> tuple[bytes, Namespace | None]:
        start = index * self.block_size
        namespace = namespaces.get(start)
        raw = tokens[start : start + self.block_size].tobytes()
        return (raw if namespace is None else namespace.key + raw), namespace

    def _store(self, holding: Holding, edge: bytes, namespace: Namespace | None) -> Node | None:
        """Copies the next block of a holding into the pool; None when nothing can be evicted for it."""
        block = self.pool.take()
        if block is None and self._evict("evicted"):
            block = self.pool.take()
        if block is None:
            return None
        self.slots.copy_out(holding.slot, holding.stored * self.block_size, block)
        self.pool.ready(block)
        raw = edge[-4 * self.block_size :]
        parent = holding.node.digest or None
        digest = block_hash(parent, namespace, raw)
        node = self.tree.insert(holding.node, edge, block, digest)
        self._say_stored(parent, digest)
        return node

    def _evict(self, reason: str) -> bool:
        node = self.tree.evict()
        if node is None:
            return False
        self.pool.give_back(node.block)
        if self._spoil_freed:
            self.slots.spoil(node.block)
        last = self._events[-1] if self._events else None
        if isinstance(last, BlockRemoved) and last.reason == reason:
            last.hashes.append(node.digest)
        else:
            self._events.append(BlockRemoved([node.digest], Tier.DEVICE, reason))
        return True

    def _say_stored(self, parent: bytes | None, digest: bytes) -> None:
        last = self._events[-1] if self._events else None
        if isinstance(last, BlockStored) and last.hashes[-1] == parent:
            last.hashes.append(digest)
        else:
            self._events.append(BlockStored([digest], parent, self.block_size, Tier.DEVICE))
