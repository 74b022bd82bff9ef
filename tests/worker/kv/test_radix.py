"""The radix tree against a plain dictionary of paths."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from worker.kv.radix import NOWHERE, Node, RadixTree

EDGES = st.lists(st.sampled_from([b"a", b"b", b"c"]), max_size=5)


class NaiveTree(RuleBasedStateMachine):
    """Paths are tuples of edges; a node is known by its path."""

    def __init__(self) -> None:
        super().__init__()
        self.tree = RadixTree()
        self.nodes: dict[tuple[bytes, ...], Node] = {}
        self.held: list[tuple[bytes, ...]] = []

    @rule(edges=EDGES)
    def grow(self, edges: list[bytes]) -> None:
        node = self.tree.root
        path: tuple[bytes, ...] = ()
        for edge in edges:
            path = (*path, edge)
            known = self.nodes.get(path)
            assert node.kid(edge) is known
            if known is None:
                known = self.nodes[path] = self.tree.insert(node, edge, b"".join(path))
                known.disk = known.disk.PRESENT
            node = known

    @rule(edges=EDGES)
    def match(self, edges: list[bytes]) -> None:
        path = self.tree.match(edges)
        self.tree.touch(path)
        depth = max(
            (size for size in range(len(edges) + 1) if not size or tuple(edges[:size]) in self.nodes), default=0
        )
        assert path == [self.nodes[tuple(edges[: size + 1])] for size in range(depth)]
        assert len({node.last_used for node in path}) <= 1
        assert all(node.last_used >= other.last_used for node in path for other in self.nodes.values())

    @precondition(lambda self: self.nodes)
    @rule(data=st.data())
    def hold(self, data: st.DataObject) -> None:
        path = data.draw(st.sampled_from(sorted(self.nodes)))
        self.tree.hold(self.nodes[path])
        self.held.append(path)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        path = data.draw(st.sampled_from(self.held))
        self.held.remove(path)
        free = self.tree.drop(self.nodes[path])
        ways = [path[:size] for size in range(len(path), 0, -1)]
        assert free == [self.nodes[way] for way in ways if not any(held[: len(way)] == way for held in self.held)]

    @precondition(lambda self: self.nodes)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        path = data.draw(st.sampled_from(sorted(self.nodes)))
        node = self.nodes[path]
        if node.kids is not None or node.users:
            with pytest.raises(RuntimeError):
                self.tree.remove(node)
            return
        node.disk = node.disk.ABSENT
        self.tree.remove(node)
        del self.nodes[path]

    @invariant()
    def same_paths(self) -> None:
        self.tree.check()
        walked = list(self.tree.walk())
        assert len(walked) == len(self.tree) == len(self.nodes)
        assert set(map(id, walked)) == set(map(id, self.nodes.values()))
        seen = {id(self.tree.root)}
        for node in walked:
            assert id(node.parent) in seen
            seen.add(id(node))
        for path, node in self.nodes.items():
            assert node.users == sum(held[: len(path)] == path for held in self.held)


NaiveTree.TestCase.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
TestNaiveTree = NaiveTree.TestCase


def test_many_children_are_found_and_go_back_to_one() -> None:
    tree = RadixTree()
    kids = [tree.insert(tree.root, bytes([number]), b"") for number in range(100)]
    assert all(tree.root.kid(bytes([number])) is kids[number] for number in range(100))
    for kid in kids[1:]:
        tree.remove(kid)
    assert tree.root.kids is kids[0]
    assert list(tree.root.children()) == [kids[0]]


def test_a_node_that_is_somewhere_is_not_removed() -> None:
    tree = RadixTree()
    node = tree.insert(tree.root, b"a", b"")
    node.block = 3
    with pytest.raises(RuntimeError):
        tree.remove(node)
    node.block = NOWHERE
    tree.remove(node)
    assert len(tree) == 0


def test_a_node_is_dropped_as_often_as_held() -> None:
    tree = RadixTree()
    node = tree.insert(tree.root, b"a", b"")
    tree.hold(node)
    tree.drop(node)
    with pytest.raises(RuntimeError):
        tree.drop(node)


def test_wrong_counts_are_found() -> None:
    tree = RadixTree()
    node = tree.insert(tree.root, b"a", b"")
    with pytest.raises(RuntimeError, match="nowhere"):
        tree.check()
    node.block = 1
    with pytest.raises(RuntimeError, match="count of children"):
        tree.check()


def test_nearest_is_the_child_that_begins_with_most_of_an_edge() -> None:
    tree = RadixTree()
    for number, edge in enumerate([b"abcdefgh", b"abcdxxxx", b"abxxxxxx", b"abcdefghijkl"]):
        tree.insert(tree.root, edge, bytes([number])).block = number
    found, same = tree.nearest(tree.root, b"abcdefzz", 8)
    assert (found and found.edge, same) == (b"abcdefgh", 6)
    assert tree.nearest(tree.root, b"abcdefghijkz", 12)[1] == 11
    assert tree.nearest(tree.root, b"zbcd", 8) == (None, 0)
    assert tree.nearest(tree.root, b"ab", 8)[1] == 2


def test_nearest_looks_at_the_newest_children_on_the_device_only() -> None:
    tree = RadixTree()
    oldest = tree.insert(tree.root, b"same", b"oldest")
    oldest.block = 0
    assert tree.nearest(tree.root, b"samx", 4) == (oldest, 3)
    for number in range(32):
        tree.insert(tree.root, bytes([number, 0, 0, 0]), bytes([number])).block = 1 + number
    assert tree.nearest(tree.root, b"samx", 4) == (None, 0)
    newest = tree.insert(tree.root, b"saxx", b"newest")
    assert tree.nearest(tree.root, b"samx", 4) == (None, 0)
    newest.block = 40
    assert tree.nearest(tree.root, b"samx", 4) == (newest, 2)
