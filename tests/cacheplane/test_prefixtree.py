"""The radix tree of chains against a plain list of them."""

from hypothesis import given
from hypothesis import strategies as st

from cacheplane.prefixtree import PrefixTree

Chain = tuple[bytes, ...]


def chain(ids: list[int]) -> Chain:
    """Blocks whose names commit to all before them, as hashes do."""
    return tuple(bytes(ids[: end + 1]) for end in range(len(ids)))


CHAINS = st.lists(st.integers(0, 2), max_size=6).map(chain)


def shared(left: Chain, right: Chain) -> int:
    return sum(one == other for one, other in zip(left, right, strict=False))


@given(st.lists(st.tuples(st.sampled_from("abc"), CHAINS, st.booleans()), max_size=25), CHAINS)
def test_it_answers_as_a_list_of_all_chains_would(history: list[tuple[str, Chain, bool]], prompt: Chain) -> None:
    tree, live = PrefixTree(), list[tuple[str, Chain]]()
    for owner, hashes, remove in history:
        if remove and live:
            gone = live.pop(len(hashes) % len(live))
            tree.remove(*gone)
        else:
            tree.add(owner, hashes)
            live.append((owner, hashes))
        expected: dict[str, int] = {}
        for name, held in live:
            if depth := shared(held, prompt):
                expected[name] = max(depth, expected.get(name, 0))
        assert tree.match(prompt) == expected


@given(st.lists(st.tuples(st.sampled_from("abc"), CHAINS), max_size=25))
def test_nothing_is_left_when_everything_was_removed(chains: list[tuple[str, Chain]]) -> None:
    tree = PrefixTree()
    for owner, hashes in chains:
        tree.add(owner, hashes)
    for owner, hashes in reversed(chains):
        tree.remove(owner, hashes)
    assert tree._root.children == {}
