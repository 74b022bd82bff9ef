"""The radix tree of prefixes: one node a block, found by comparing namespace and tokens, never by hash alone."""

import heapq
from collections.abc import Iterator


class Node:
    """One block of one prefix.

    tokens    its edge: little-endian u32 token ids of the block, with the namespace in front where a span begins
    digest    16-byte chain hash, for events only
    users     running sequences that stand on this node; it and its ancestors can't be evicted while there are any
    """

    __slots__ = ("block", "children", "digest", "edge", "id", "last_used", "parent", "users")

    def __init__(self, node_id: int, parent: "Node | None", edge: bytes, block: int, digest: bytes) -> None:
        self.id = node_id
        self.parent = parent
        self.edge = edge
        self.block = block
        self.digest = digest
        self.children = 0
        self.users = 0
        self.last_used = 0


class RadixTree:
    """All prefixes of one worker; namespaces are disjoint because an edge that begins a span starts with its namespace.

    One flat dictionary maps (parent, edge) to node, so that a node costs no dictionary of its own. Equality of the key
    is equality of namespace and token ids: a hash collision cannot make two prefixes meet.

    Eviction is by least recent use among leaves that no sequence stands on. Candidates wait in a heap with lazy
    deletion: a stale entry is dropped when it comes up, so a touch costs O(log n) amortised.
    """

    def __init__(self) -> None:
        self.root = Node(0, None, b"", -1, b"")
        self._edges: dict[bytes, Node] = {}
        self._next_id = 1
        self._clock = 0
        self._candidates: list[tuple[int, int, Node]] = []

    def __len__(self) -> int:
        return len(self._edges)

    def child(self, parent: Node, edge: bytes) -> Node | None:
        return self._edges.get(parent.id.to_bytes(8, "little") + edge)

    def match(self, edges: list[bytes]) -> list[Node]:
        """The nodes of the longest known prefix, in order; they become the most recently used."""
        path: list[Node] = []
        node = self.root
        for edge in edges:
            found = self.child(node, edge)
            if found is None:
                break
            path.append(found)
            node = found
        self._touch(path)
        return path

    def insert(self, parent: Node, edge: bytes, block: int, digest: bytes) -> Node:
        """A new node under parent. The caller holds a user on the parent and has seen that the child does not exist."""
        node = Node(self._next_id, parent, edge, block, digest)
        self._next_id += 1
        self._edges[parent.id.to_bytes(8, "little") + edge] = node
        parent.children += 1
        self._touch([node])
        return node

    def hold(self, node: Node) -> None:
        """A sequence now stands on node."""
        node.users += 1

    def drop(self, node: Node) -> None:
        """A sequence no longer stands on node."""
        if node.users < 1:
            raise RuntimeError("radix tree: a node was dropped more often than held")
        node.users -= 1
        self._offer(node)

    def age(self, path: list[Node]) -> None:
        """The nodes of path become the first to be evicted, deepest first."""
        for node in reversed(path):
            node.last_used = 0
            self._offer(node)

    def evict(self) -> Node | None:
        """Removes the least recently used leaf that nobody stands on and returns it; None when there is none."""
        while self._candidates:
            last_used, _, node = heapq.heappop(self._candidates)
            if last_used != node.last_used or not self._evictable(node):
                continue
            parent = node.parent
            assert parent is not None
            del self._edges[parent.id.to_bytes(8, "little") + node.edge]
            node.parent = None
            parent.children -= 1
            self._offer(parent)
            return node
        return None

    def walk(self) -> Iterator[Node]:
        """Every node, parents before children."""
        return iter(self._edges.values())

    def check(self) -> None:
        """The tree's books; RuntimeError when they do not balance."""
        counted: dict[int, int] = {}
        waiting = {(node.id, last_used) for last_used, _, node in self._candidates}
        for node in self._edges.values():
            assert node.parent is not None
            counted[node.parent.id] = counted.get(node.parent.id, 0) + 1
        for node in [self.root, *self._edges.values()]:
            if node.children != counted.get(node.id, 0):
                raise RuntimeError("radix tree: a child count is wrong")
            if self._evictable(node) and (node.id, node.last_used) not in waiting:
                raise RuntimeError("radix tree: an evictable leaf is not offered for eviction")

    def _touch(self, path: list[Node]) -> None:
        self._clock += 1
        for node in path:
            node.last_used = self._clock
        if path:
            self._offer(path[-1])

    def _evictable(self, node: Node) -> bool:
        return node.parent is not None and node.children == 0 and node.users == 0

    def _offer(self, node: Node) -> None:
        if not self._evictable(node):
            return
        heapq.heappush(self._candidates, (node.last_used, node.id, node))
        if len(self._candidates) > 2 * len(self._edges) + 64:
            self._candidates = [entry for entry in self._candidates if self._current(entry)]
            heapq.heapify(self._candidates)

    def _current(self, entry: tuple[int, int, Node]) -> bool:
        return entry[0] == entry[2].last_used and self._evictable(entry[2])
