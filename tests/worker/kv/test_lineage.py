"""Lineages: equal for equal paths and for no others, and cheap however long the path."""

from array import array
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.worker.kv.sequences import BLOCK, PUBLIC
from tests.worker.kv.tiered import live, tiered
from worker.kv import lineage, memory
from worker.kv.lineage import NO_LINEAGE, lineage_after, lineage_of
from worker.kv.radix import Node, RadixTree


def grown(tree: RadixTree, edges: list[bytes]) -> Node:
    node = tree.root
    for edge in edges:
        node = node.kid(edge) or tree.insert(node, edge, b"same digest")
    return node


@given(st.lists(st.lists(st.sampled_from([b"a", b"b"]), min_size=1, max_size=40), min_size=1, max_size=6))
def test_a_lineage_is_that_of_the_edges_whatever_was_asked_before(paths: list[list[bytes]]) -> None:
    tree = RadixTree()
    for edges in paths:
        node, expected = grown(tree, edges), NO_LINEAGE
        for edge in edges:
            expected = lineage_after(expected, edge)
        assert lineage_of(node) == expected


def test_after_the_first_one_a_lineage_costs_sixteen_hashes_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    leaf = grown(RadixTree(), [b"a"] * 1000)
    way = [leaf]
    while way[-1].parent is not None and way[-1].parent.parent is not None:
        way.append(way[-1].parent)
    lineage_of(leaf)
    calls = 0

    def counted(parent: bytes, edge: bytes) -> bytes:
        nonlocal calls
        calls += 1
        return lineage_after(parent, edge)

    monkeypatch.setattr(lineage, "lineage_after", counted)
    for node in way:
        calls = 0
        lineage_of(node)
        assert calls <= 16


def weak(parent: bytes | None, _namespace: object, tokens: bytes) -> bytes:
    """A chain hash that knows only how long the path is, and the last token: as if someone had found collisions."""
    depth = 1 + (parent[0] if parent else 0)
    return bytes([depth]) * 12 + tokens[-4:]


def test_a_path_whose_hashes_collide_with_anothers_never_serves_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "block_hash", weak)
    mine, theirs = [1, 1, 1, 7, 5, 5, 5, 5, 9], [2, 2, 2, 7, 5, 5, 5, 5, 9]
    for name, tokens in (("mine", mine), ("theirs", theirs)):
        kv = tiered(tmp_path / name, disk=8)
        live(kv, tokens)
        assert kv.shut() == 2
    names = {path.name for path in (tmp_path / "mine").iterdir()}
    assert names == {path.name for path in (tmp_path / "theirs").iterdir()}
    (root,) = (name for name in names if name.startswith("01" * 12))
    (tmp_path / "theirs" / root).replace(tmp_path / "mine" / root)  # my child lies beside their root now
    kv = tiered(tmp_path / "mine", disk=8)
    assert kv.known(array("I", theirs), PUBLIC) == 1
    assert live(kv, theirs) == (0, 0, BLOCK)
    assert live(kv, mine) == (0, 0, 0)
    kv.shut()


def test_of_two_paths_with_the_same_hashes_one_is_kept_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "block_hash", weak)
    mine, theirs = [1, 1, 1, 7, 5, 5, 5, 5, 9], [2, 2, 2, 7, 5, 5, 5, 5, 9]
    kv = tiered(tmp_path, blocks=8, disk=8)
    live(kv, mine)
    live(kv, theirs)
    assert kv.shut() == 2
    kv = tiered(tmp_path, blocks=8, disk=8)
    assert sorted([sum(live(kv, mine)), sum(live(kv, theirs))]) == [0, 8]
    assert live(kv, mine) == live(kv, theirs) == (8, 0, 0)
    kv.shut()
