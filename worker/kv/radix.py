"""The radix tree of prefixes: one node a block, found by comparing namespace and tokens, never by hash alone."""

from collections.abc import Iterator
from enum import IntEnum
from itertools import islice

NOWHERE = -1
_NEAREST = 32  # children that are compared with a block that none of them equals


class OnDisk(IntEnum):
    """Whether a block is on disk: ABSENT -> WRITING -> PRESENT -> ABSENT."""

    ABSENT = 0
    WRITING = 1
    PRESENT = 2


class Node:
    """One block of one prefix, and where its KV is.

    edge              little-endian u32 token ids of the block, with the namespace in front where a span begins
    digest            16-byte chain hash, for events and file names only
    block, host       index in the device pool and in the host tier, NOWHERE when it is not there
    users             running sequences that stand on this node or below it; none of these is ever evicted
    device_children   children that are on the device; eviction takes leaves first
    host_children     the same on host
    lineage           32 bytes that commit to the whole path, None unless marked (worker/kv/lineage.py)
    kids              no child, the only child, or children by edge: most nodes have one, and a dictionary for each
                      would be most of what a block costs
    """

    __slots__ = (
        "block",
        "device_children",
        "digest",
        "disk",
        "edge",
        "host",
        "host_children",
        "kids",
        "last_used",
        "lineage",
        "parent",
        "users",
    )

    def __init__(self, parent: "Node | None", edge: bytes, digest: bytes) -> None:
        self.parent = parent
        self.edge = edge
        self.digest = digest
        self.kids: Node | dict[bytes, Node] | None = None
        self.block = NOWHERE
        self.host = NOWHERE
        self.disk = OnDisk.ABSENT
        self.device_children = 0
        self.host_children = 0
        self.users = 0
        self.last_used = 0
        self.lineage: bytes | None = None

    @property
    def resident(self) -> bool:
        """Whether any tier has its KV, or is about to."""
        return self.block != NOWHERE or self.host != NOWHERE or self.disk != OnDisk.ABSENT

    def kid(self, edge: bytes) -> "Node | None":
        kids = self.kids
        if type(kids) is dict:
            return kids.get(edge)
        return kids if isinstance(kids, Node) and kids.edge == edge else None

    def children(self) -> "Iterator[Node]":
        if isinstance(self.kids, Node):
            yield self.kids
        elif self.kids is not None:
            yield from self.kids.values()

    def newest(self) -> "Iterator[Node]":
        """The children, the one that came last first."""
        return reversed(self.kids.values()) if isinstance(self.kids, dict) else self.children()

    def adopt(self, kid: "Node") -> None:
        if self.kids is None:
            self.kids = kid
        elif isinstance(self.kids, Node):
            self.kids = {self.kids.edge: self.kids, kid.edge: kid}
        else:
            self.kids[kid.edge] = kid

    def disown(self, kid: "Node") -> None:
        if isinstance(self.kids, dict):
            del self.kids[kid.edge]
            if len(self.kids) == 1:
                (self.kids,) = self.kids.values()
        else:
            self.kids = None


class RadixTree:
    """All prefixes of one worker; namespaces are disjoint because an edge that begins a span starts with its namespace.

    An edge is compared byte by byte: equality is equality of namespace and token ids, and a hash collision cannot make
    two prefixes meet. The tree knows who is where and in use; what is evicted, and where to, is decided by Tiers.
    """

    def __init__(self) -> None:
        self.root = Node(None, b"", b"")
        self._size = 0
        self._clock = 0

    def __len__(self) -> int:
        return self._size

    def match(self, edges: list[bytes]) -> list[Node]:
        """The nodes of the longest known prefix, in order."""
        path: list[Node] = []
        node: Node | None = self.root
        for edge in edges:
            assert node is not None
            node = node.kid(edge)
            if node is None:
                break
            path.append(node)
        return path

    def nearest(self, parent: Node, edge: bytes, width: int) -> tuple[Node | None, int]:
        """The child on the device that begins with the most bytes of edge, and how many these are.

        width   bytes that the edges of children must have which are considered: of two lengths, those with a namespace
                in front are the longer ones, and tokens must never be compared with it

        Only the newest children are looked at: most nodes have one, and a prompt that begins a thousand conversations
        differs from all of them in its first tokens.
        """
        best, most = None, 0
        for kid in islice(parent.newest(), _NEAREST):
            same = _common(edge, kid.edge) if kid.block != NOWHERE and len(kid.edge) == width else 0
            if same > most:
                best, most = kid, same
        return best, most

    def insert(self, parent: Node, edge: bytes, digest: bytes) -> Node:
        """A new node under parent, which has no child with this edge yet. It counts as unused until it is touched."""
        node = Node(parent, edge, digest)
        parent.adopt(node)
        self._size += 1
        return node

    def remove(self, node: Node) -> None:
        """Takes out a node without children, users and copies."""
        if node.kids is not None or node.users or node.resident or node.parent is None:
            raise RuntimeError("radix tree: a node was removed that is needed")
        node.parent.disown(node)
        node.parent = None
        self._size -= 1

    def touch(self, path: list[Node]) -> None:
        """These nodes were used now, together. Those that nobody stands on have to be offered for eviction anew."""
        self._clock += 1
        for node in path:
            node.last_used = self._clock

    def hold(self, node: Node) -> None:
        """A sequence stands on node from now on; so it stands on the whole way to the root."""
        for step in self.way(node):
            step.users += 1

    def drop(self, node: Node) -> list[Node]:
        """A sequence stands on node no longer; returns the nodes that nobody stands on any more, deepest first."""
        free: list[Node] = []
        for step in self.way(node):
            if step.users < 1:
                raise RuntimeError("radix tree: a node was dropped more often than held")
            step.users -= 1
            if not step.users:
                free.append(step)
        return free

    def way(self, node: Node) -> Iterator[Node]:
        """From node up to, not including, the root."""
        while node.parent is not None:
            yield node
            node = node.parent

    def walk(self, top: Node | None = None) -> Iterator[Node]:
        """Every node below top (the root by default), parents before children."""
        waiting = list((top or self.root).children())
        while waiting:
            node = waiting.pop()
            yield node
            waiting.extend(node.children())

    def check(self) -> None:
        """The tree's books; RuntimeError when they do not balance."""
        nodes = list(self.walk())
        if len(nodes) != self._size:
            raise RuntimeError("radix tree: the size is wrong")
        for node in [self.root, *nodes]:
            kids = list(node.children())
            if any(kid.parent is not node for kid in kids):
                raise RuntimeError("radix tree: a child does not know its parent")
            on_device, on_host = sum(k.block != NOWHERE for k in kids), sum(k.host != NOWHERE for k in kids)
            if (node.device_children, node.host_children) != (on_device, on_host):
                raise RuntimeError("radix tree: a count of children is wrong")
            if node is not self.root and node.users < max((kid.users for kid in kids), default=0):
                raise RuntimeError("radix tree: a child is in use and its parent is not")
            if node is not self.root and not node.resident and not node.users:
                raise RuntimeError("radix tree: a node is nowhere and not in use")


def _common(one: bytes, other: bytes) -> int:
    """How many bytes two edges begin with in common."""
    size = min(len(one), len(other))
    different = int.from_bytes(one[:size], "little") ^ int.from_bytes(other[:size], "little")
    return ((different & -different).bit_length() - 1) // 8 if different else size
