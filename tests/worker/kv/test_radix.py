"""The radix tree against a model of it that is a dictionary of paths."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from worker.kv import Node, RadixTree

EDGES = [b"a", b"b", b"c"]
Path = tuple[bytes, ...]
paths = st.lists(st.sampled_from(EDGES), min_size=1, max_size=4)


class NaiveTree(RuleBasedStateMachine):
    """Every path that is held, when it was last used, and how often it is stood on."""

    def __init__(self) -> None:
        super().__init__()
        self.tree = RadixTree()
        self.nodes: dict[Path, Node] = {}
        self.used: dict[Path, int] = {}
        self.stood_on: list[Path] = []
        self.clock = 0

    def known(self, edges: list[bytes]) -> list[Path]:
        prefixes = [tuple(edges[:size]) for size in range(1, len(edges) + 1)]
        return [prefix for prefix in prefixes if prefix in self.nodes]

    def evictable(self) -> list[Path]:
        """Leaves that nobody stands on."""
        parents = {path[:-1] for path in self.nodes}
        return [path for path in self.nodes if path not in parents and path not in self.stood_on]

    @rule(edges=paths)
    def match(self, edges: list[bytes]) -> None:
        found, expected = self.tree.match(edges), self.known(edges)
        assert found == [self.nodes[path] for path in expected]
        self.clock += 1
        self.used |= dict.fromkeys(expected, self.clock)

    @rule(edges=paths)
    def insert(self, edges: list[bytes]) -> None:
        """Stands on the longest known prefix, as a sequence does, and grows it by one block."""
        known = self.known(edges)
        if len(known) == len(edges):
            return
        path = tuple(edges[: len(known) + 1])
        parent = self.nodes[path[:-1]] if known else self.tree.root
        self.tree.hold(parent)
        assert self.tree.child(parent, path[-1]) is None
        node = self.tree.insert(parent, path[-1], len(self.nodes), b"".join(path))
        assert self.tree.child(parent, path[-1]) is node
        self.tree.drop(parent)
        self.clock += 1
        self.nodes[path], self.used[path] = node, self.clock

    @precondition(lambda self: self.nodes)
    @rule(data=st.data())
    def hold(self, data: st.DataObject) -> None:
        path = data.draw(st.sampled_from(list(self.nodes)))
        self.tree.hold(self.nodes[path])
        self.stood_on.append(path)

    @precondition(lambda self: self.stood_on)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        path = data.draw(st.sampled_from(self.stood_on))
        self.tree.drop(self.nodes[path])
        self.stood_on.remove(path)

    @rule(edges=paths)
    def age(self, edges: list[bytes]) -> None:
        known = self.known(edges)
        self.tree.age([self.nodes[path] for path in known])
        self.used |= dict.fromkeys(known, 0)

    @rule()
    def evict(self) -> None:
        node, candidates = self.tree.evict(), self.evictable()
        if not candidates:
            assert node is None
            return
        path = next(path for path, held in self.nodes.items() if held is node)
        assert path in candidates
        assert self.used[path] == min(self.used[candidate] for candidate in candidates)
        del self.nodes[path], self.used[path]

    @invariant()
    def same_nodes(self) -> None:
        self.tree.check()
        assert len(self.tree) == len(self.nodes)
        walked = list(self.tree.walk())
        assert set(walked) == set(self.nodes.values())
        seen = {self.tree.root}
        for node in walked:
            assert node.parent in seen
            seen.add(node)


NaiveTree.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestNaiveTree = NaiveTree.TestCase


def grown(*edges: bytes) -> tuple[RadixTree, list[Node]]:
    """A tree of one path, one node for each edge."""
    tree = RadixTree()
    nodes = [tree.root]
    for block, edge in enumerate(edges):
        nodes.append(tree.insert(nodes[-1], edge, block, edge))
    return tree, nodes[1:]


def test_eviction_goes_from_the_leaf_to_the_root() -> None:
    tree, nodes = grown(b"a", b"b", b"c")
    assert [tree.evict() for _ in range(4)] == [*reversed(nodes), None]


def test_a_node_protects_all_that_it_stands_on() -> None:
    tree, (first, second) = grown(b"a", b"b")
    tree.hold(second)
    assert tree.evict() is None
    tree.drop(second)
    assert [tree.evict(), tree.evict()] == [second, first]


def test_the_least_recently_used_leaf_goes_first() -> None:
    tree = RadixTree()
    nodes = [tree.insert(tree.root, edge, block, edge) for block, edge in enumerate(EDGES)]
    tree.match([b"a"])
    assert [tree.evict() for _ in range(3)] == [nodes[1], nodes[2], nodes[0]]


def test_an_aged_path_goes_before_what_is_older() -> None:
    tree = RadixTree()
    old = tree.insert(tree.root, b"a", 0, b"a")
    new = tree.insert(tree.root, b"b", 1, b"b")
    tree.age([new])
    assert [tree.evict(), tree.evict()] == [new, old]


def test_dropping_more_often_than_holding_is_a_bug_of_ours() -> None:
    tree, (node,) = grown(b"a")
    with pytest.raises(RuntimeError, match="more often"):
        tree.drop(node)


def test_many_touches_do_not_grow_the_list_of_candidates() -> None:
    tree, _ = grown(b"a", b"b")
    for _ in range(10_000):
        tree.match([b"a", b"b"])
    assert len(tree._candidates) < 100
    tree.check()


def test_a_wrong_child_count_is_found() -> None:
    tree, (node,) = grown(b"a")
    node.children = 1
    with pytest.raises(RuntimeError, match="child count"):
        tree.check()


def test_a_leaf_that_is_never_offered_for_eviction_is_found() -> None:
    tree, _ = grown(b"a")
    tree._candidates.clear()
    with pytest.raises(RuntimeError, match="not offered"):
        tree.check()
