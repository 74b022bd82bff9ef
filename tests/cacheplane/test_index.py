"""The index against a naive model, and its bound."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from cacheplane import blocktable
from cacheplane import index as index_module
from cacheplane.index import Overlap, PrefixIndex
from cacheplane.wire import AllBlocksCleared, Event, Tier
from tests.cacheplane.oracle import Model, batch, check_books, held, keys, removed, restore, snapshot, stored

WORKERS = ["w0", "w1", "w2"]
NAMES = [bytes([value]) * 16 for value in range(8)]
TRUNK = [b"trunk" + bytes([block]) * 11 for block in range(40)]
CHAINS = [TRUNK[:fork] + [bytes([fork, block]) * 8 for block in range(fork, 70)] for fork in (0, 1, 16, 37)]
EVERY = sorted({*TRUNK, *(name for chain in CHAINS for name in chain)})

workers = st.sampled_from(WORKERS)
tiers = st.sampled_from(Tier)
chains = st.sampled_from(CHAINS)
edges = st.integers(0, 70)
snapshots = st.lists(st.tuples(st.sampled_from(CHAINS[0] + TRUNK), tiers), max_size=60)


class Equivalence(RuleBasedStateMachine):
    """Any history of events, of prompts that share beginnings: the index knows what the naive model knows."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(blocktable, "SCANNED", 32)
        self.index, self.model = PrefixIndex(max_blocks=10_000), Model()

    @rule(worker=workers, chain=chains, start=edges, end=edges, tier=tiers)
    def store(self, worker: str, chain: list[bytes], start: int, end: int, tier: Tier) -> None:
        event = stored(*chain[start:end], tier=tier, parent=chain[start - 1] if start else None)
        self.index.apply(worker, batch(event))
        self.model.apply(worker, [event])

    @rule(worker=workers, chain=chains, start=edges, end=edges, tier=tiers)
    def remove(self, worker: str, chain: list[bytes], start: int, end: int, tier: Tier) -> None:
        event = removed(*chain[start:end][::-1], tier=tier)
        self.index.apply(worker, batch(event))
        self.model.apply(worker, [event])

    @rule(worker=workers, names=st.lists(st.sampled_from(TRUNK), max_size=5), tier=tiers)
    def name_blocks_in_any_order_and_twice(self, worker: str, names: list[bytes], tier: Tier) -> None:
        events: list[Event] = [stored(*names, tier=tier, parent=TRUNK[7]), removed(*names[1:], tier=tier)]
        self.index.apply(worker, batch(*events))
        self.model.apply(worker, events)

    @rule(worker=workers)
    def clear(self, worker: str) -> None:
        self.index.apply(worker, batch(AllBlocksCleared()))
        self.model.apply(worker, [AllBlocksCleared()])

    @rule(worker=workers, most=st.integers(0, 60))
    def clear_a_part(self, worker: str, most: int) -> None:
        gone = set(self.index.forget(worker, most).tolist())
        assert len(gone) == min(most, len(self.model.blocks(worker)))
        names = {name for name in EVERY if int(keys([name])[0]) in gone}
        self.model.held = {held for held in self.model.held if held[0] != worker or held[1] not in names}

    @rule(worker=workers, blocks=snapshots)
    def replace(self, worker: str, blocks: list[tuple[bytes, Tier]]) -> None:
        restore(self.index, worker, snapshot(*blocks))
        self.model.replace(worker, snapshot(*blocks))

    @rule(worker=workers)
    def drop(self, worker: str) -> None:
        self.index.drop(worker)
        self.model.drop(worker)

    @invariant()
    def matches_are_the_same(self) -> None:
        for chain in CHAINS:
            assert self.index.match(keys(chain)) == self.model.match(chain)

    @invariant()
    def holdings_are_the_same(self) -> None:
        blocks = {worker: self.model.blocks(worker) for worker in WORKERS}
        assert {worker: self.index.blocks(worker) for worker in WORKERS} == {w: len(b) for w, b in blocks.items()}
        assert len(self.index) == sum(map(len, blocks.values()))
        for worker in WORKERS:
            assert {name for name, _ in held(self.index, worker, EVERY)} == blocks[worker]

    @invariant()
    def the_books_balance(self) -> None:
        check_books(self.index)

    def teardown(self) -> None:
        self.patch.undo()
        for worker in WORKERS:
            self.index.drop(worker)
        assert (len(self.index), len(self.index._table), len(self.index._sets), len(self.index._roster)) == (0, 0, 0, 0)


Equivalence.TestCase.settings = settings(max_examples=25, stateful_step_count=20, deadline=None)
TestEquivalence = Equivalence.TestCase


def test_a_match_stops_at_the_first_block_that_a_worker_lacks() -> None:
    index = PrefixIndex()
    index.apply("w0", batch(stored(*NAMES[:3])))
    index.apply("w1", batch(stored(NAMES[0], NAMES[2])))
    index.apply("w2", batch(stored(NAMES[1], NAMES[2])))
    assert index.match(keys(NAMES)) == {"w0": Overlap(device=3), "w1": Overlap(device=1)}
    assert index.match(keys([])) == {}


def test_a_device_eviction_with_a_copy_on_host_stays_routable() -> None:
    index = PrefixIndex()
    index.apply(
        "w0", batch(stored(*NAMES[:4]), stored(NAMES[1], NAMES[3], tier=Tier.HOST), removed(NAMES[1], NAMES[3]))
    )
    assert index.match(keys(NAMES)) == {"w0": Overlap(device=2, host=2)}
    index.apply("w0", batch(stored(NAMES[3], tier=Tier.DISK), removed(NAMES[3], tier=Tier.HOST)))
    assert index.match(keys(NAMES)) == {"w0": Overlap(device=2, host=1, disk=1)}


def test_a_block_on_two_tiers_is_loaded_from_the_nearer_one() -> None:
    index = PrefixIndex()
    for tier, overlap in ((Tier.DISK, Overlap(disk=1)), (Tier.HOST, Overlap(host=1)), (Tier.DEVICE, Overlap(device=1))):
        index.apply("w0", batch(stored(NAMES[0], tier=tier)))
        assert index.match(keys(NAMES)) == {"w0": overlap}
    assert index.blocks("w0") == 1


def test_shared_storage_is_no_workers_own() -> None:
    index = PrefixIndex()
    index.apply("w0", batch(stored(*NAMES, tier=Tier.REMOTE), removed(*NAMES, tier=Tier.REMOTE)))
    assert index.match(keys(NAMES)) == {}
    assert len(index) == 0


def test_a_worker_is_synced_from_its_snapshot_until_doubt() -> None:
    index = PrefixIndex()
    index.apply("w0", batch(stored(NAMES[0])))
    assert not index.synced("w0")
    restore(index, "w0", snapshot((NAMES[1], Tier.DEVICE)))
    assert index.synced("w0")
    index.doubt("w0")
    assert not index.synced("w0")
    assert index.match(keys(NAMES[1:])) == {"w0": Overlap(device=1)}
    restore(index, "w0", snapshot())
    index.drop("w0")
    assert not index.synced("w0")


def test_hashes_of_other_engines_are_known_by_their_first_eight_bytes() -> None:
    index = PrefixIndex()
    index.apply("w0", batch(stored(b"8 bytes.", b"thirty-two bytes of a raw sha256")))
    assert index.match(keys([b"8 bytes.", b"thirty-two bytes of a raw sha256"])) == {"w0": Overlap(device=2)}
    index.apply("w0", batch(removed(b"8 bytes.")))
    assert held(index, "w0", [b"8 bytes.", b"thirty-t"]) == {(b"thirty-t", Tier.DEVICE)}


def test_above_its_bound_the_largest_worker_gives_up_its_deepest_blocks() -> None:
    index = PrefixIndex(max_blocks=6)
    index.apply("w0", batch(stored(*NAMES[:5])))
    index.apply("w1", batch(stored(*NAMES[:3])))
    assert len(index) == 6
    assert index.forgotten == 2
    assert index.match(keys(NAMES)) == {"w0": Overlap(device=3), "w1": Overlap(device=3)}
    index.apply("w0", batch(removed(*NAMES[:5])))
    assert index.blocks("w0") == 0


def test_what_is_stored_in_another_order_is_given_up_from_its_end_all_the_same() -> None:
    index = PrefixIndex(max_blocks=50)
    for first in (0, 20, 40):
        index.apply("w0", batch(stored(*CHAINS[0][first : first + 20], parent=CHAINS[0][first - 1] if first else None)))
    assert index.match(keys(CHAINS[0])) == {"w0": Overlap(device=50)}
    index.apply("w0", batch(stored(*NAMES, parent=b"unheard of")))
    assert index.match(keys(CHAINS[0])) == {"w0": Overlap(device=50)}


@given(st.lists(st.tuples(workers, st.lists(st.sampled_from(NAMES), max_size=6)), max_size=10), st.integers(1, 6))
def test_the_bound_holds_and_never_invents_a_block(history: list[tuple[str, list[bytes]]], bound: int) -> None:
    small, whole = PrefixIndex(max_blocks=bound), PrefixIndex(max_blocks=100)
    for worker, chain in history:
        for index in (small, whole):
            index.apply(worker, batch(stored(*chain)))
        assert len(small) <= bound
    check_books(small)
    for worker, overlap in small.match(keys(NAMES)).items():
        assert overlap.blocks <= whole.match(keys(NAMES))[worker].blocks
    assert small.forgotten >= len(whole) - len(small)


def test_a_snapshot_above_the_bound_leaves_what_matches_from_block_0(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "AT_ONCE", 16)
    index = PrefixIndex(max_blocks=30)
    restore(index, "w0", snapshot(*((name, Tier.DEVICE) for name in TRUNK)))
    assert (len(index), index.forgotten) == (30, 10)
    check_books(index)


def test_where_sets_of_holders_are_too_many_a_block_keeps_the_worker_that_spoke_last() -> None:
    index = PrefixIndex()
    index._max_sets = 2
    index.apply("w0", batch(stored(*NAMES)))
    index.apply("w1", batch(stored(NAMES[0])))
    index.apply("w2", batch(stored(*NAMES[:2])))
    assert index.match(keys(NAMES)) == {"w2": Overlap(device=2)}
    assert (index.forgotten, len(index)) == (3, 8)
    check_books(index)


@given(st.permutations(range(70)), st.integers(0, 69))
def test_a_prompt_that_lies_here_and_there_is_found_up_to_the_first_gap(order: list[int], gap: int) -> None:
    index = PrefixIndex(max_blocks=1_000)
    for block in order:
        index.apply("w0", batch(stored(CHAINS[0][block])))
    assert index.match(keys(CHAINS[0])) == {"w0": Overlap(device=70)}
    index.apply("w0", batch(removed(CHAINS[0][gap])))
    assert index.match(keys(CHAINS[0])) == ({"w0": Overlap(device=gap)} if gap else {})
    index.apply("w0", batch(removed(*CHAINS[0][::-1])))
    assert (index.match(keys(CHAINS[0])), len(index)) == ({}, 0)


@given(st.integers(1, 200), st.integers(1, 50))
def test_a_worker_is_cleared_as_far_as_others_can_wait(blocks: int, most: int) -> None:
    index = PrefixIndex(max_blocks=1_000)
    names = [bytes([number]) * 16 for number in range(blocks)]
    index.apply("w0", batch(stored(*names)))
    index.apply("w1", batch(stored(*names[:3])))
    left, gone = blocks, list[int]()
    while left:
        gone += index.forget("w0", most).tolist()
        assert index.clear("w0", 0) == index.blocks("w0") == max(0, left - most)
        left = index.blocks("w0")
        check_books(index)
    assert sorted(gone) == sorted(keys(names).tolist())
    assert index.match(keys(names)) == {"w1": Overlap(device=min(3, blocks))}


def test_slots_are_used_again() -> None:
    index = PrefixIndex()
    for restart in range(50):
        index.apply(f"w{restart}", batch(stored(NAMES[0])))
        index.drop(f"w{restart}")
    assert not index._held  # a name may never come again
    index.apply("w", batch(stored(NAMES[0])))
    assert index._roster.bit("w") == 1


def test_256_workers_with_one_prompt_are_told_apart() -> None:
    index = PrefixIndex()
    for number in range(256):
        index.apply(f"w{number}", batch(stored(*CHAINS[0][: 1 + number % 70])))
    found = index.match(keys(CHAINS[0]))
    assert found == {f"w{number}": Overlap(device=1 + number % 70) for number in range(256)}


def test_churn_far_beyond_the_size_of_the_cache_leaves_nothing_behind() -> None:
    """Three workers with room for 2,000 blocks each store and evict 40,000: neither rows, seats nor sets grow."""
    index, random = PrefixIndex(), np.random.default_rng(7)
    resident: dict[str, list[list[bytes]]] = {worker: [] for worker in WORKERS}
    sizes = []
    for turn in range(400):
        worker, names = WORKERS[turn % 3], [random.bytes(16) for _ in range(100)]
        resident[worker].append(names)
        evicted = resident[worker].pop(0) if len(resident[worker]) > 20 else []
        index.apply(worker, batch(stored(*names), stored(*names[:50], tier=Tier.HOST), removed(*evicted)))
        index.apply(worker, batch(removed(*evicted[:50], tier=Tier.HOST)))
        sizes.append(index.nbytes)
    assert len(index) == 6_000
    assert max(sizes[200:]) <= 1.02 * max(sizes[:200])
    check_books(index)
