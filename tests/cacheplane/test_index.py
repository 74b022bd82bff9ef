"""The index against a naive model, and its bound."""

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from cacheplane.index import Overlap, PrefixIndex
from cacheplane.wire import AllBlocksCleared, Batch, BlockRemoved, BlockStored, Event, Snapshot, SnapshotBlock, Tier

WORKERS = ["w0", "w1", "w2"]
NAMES = [bytes([value]) * 16 for value in range(8)]
FEW = st.sampled_from(NAMES[:4])  # so that random histories meet on the same blocks
LOCAL = (Tier.DEVICE, Tier.HOST, Tier.DISK)


def stored(*names: bytes, tier: Tier = Tier.DEVICE) -> BlockStored:
    return BlockStored(list(names), None, 16, tier)


def removed(*names: bytes, tier: Tier = Tier.DEVICE) -> BlockRemoved:
    return BlockRemoved(list(names), tier)


def batch(*events: Event) -> Batch:
    return Batch(0.0, list(events))


def snapshot(*blocks: tuple[bytes, Tier]) -> Snapshot:
    return Snapshot(1, -1, 16, [SnapshotBlock(name, None, tier) for name, tier in blocks])


class Model:
    """What the index should know, in the plainest form: (worker, block, tier) triples."""

    def __init__(self) -> None:
        self.held: set[tuple[str, bytes, Tier]] = set()

    def apply(self, worker: str, events: Iterable[Event]) -> None:
        for event in events:
            match event:
                case BlockStored():
                    self.held |= {(worker, name, event.tier) for name in event.hashes}
                case BlockRemoved():
                    self.held -= {(worker, name, event.tier) for name in event.hashes}
                case AllBlocksCleared():
                    self.drop(worker)

    def drop(self, worker: str) -> None:
        self.held = {triple for triple in self.held if triple[0] != worker}

    def match(self, worker: str, hashes: list[bytes]) -> Overlap:
        counts = dict.fromkeys(LOCAL, 0)
        for name in hashes:
            tiers = [tier for tier in LOCAL if (worker, name, tier) in self.held]
            if not tiers:
                break
            counts[tiers[0]] += 1
        return Overlap(*counts.values())

    def blocks(self, worker: str) -> int:
        return len({name for owner, name, tier in self.held if owner == worker and tier in LOCAL})


names = st.lists(FEW, max_size=6)
tiers = st.sampled_from(Tier)
events = st.one_of(
    st.builds(BlockStored, names, st.none(), st.just(16), tiers),
    st.builds(BlockRemoved, names, tiers),
    st.just(AllBlocksCleared()),
)
snapshots = st.lists(st.tuples(FEW, tiers), max_size=6).map(lambda blocks: snapshot(*blocks))
steps = st.lists(st.tuples(st.sampled_from(WORKERS), st.lists(events, max_size=3) | snapshots | st.none()), max_size=8)


@given(steps, names)
def test_the_index_knows_what_a_naive_model_knows(
    history: list[tuple[str, list[Event] | Snapshot | None]], hashes: list[bytes]
) -> None:
    index, model = PrefixIndex(), Model()
    for worker, step in history:
        match step:
            case None:
                index.drop(worker)
                model.drop(worker)
            case Snapshot():
                index.replace(worker, step)
                model.drop(worker)
                model.held |= {(worker, block.hash, Tier(block.tier)) for block in step.blocks}
            case _:
                index.apply(worker, batch(*step))
                model.apply(worker, step)
    expected = {worker: model.match(worker, hashes) for worker in WORKERS}
    assert index.match(hashes) == {worker: overlap for worker, overlap in expected.items() if overlap.blocks}
    assert [index.blocks(worker) for worker in WORKERS] == [model.blocks(worker) for worker in WORKERS]
    assert len(index) == sum(model.blocks(worker) for worker in WORKERS)


@given(steps)
def test_nothing_is_left_of_workers_that_left(history: list[tuple[str, list[Event] | Snapshot | None]]) -> None:
    index = PrefixIndex()
    for worker, step in history:
        if isinstance(step, Snapshot):
            index.replace(worker, step)
        elif step is not None:
            index.apply(worker, batch(*step))
    for worker in WORKERS:
        index.drop(worker)
    assert len(index) == 0
    assert not any(index._holders.values())
    assert not index._slots


def test_a_match_stops_at_the_first_block_that_a_worker_lacks() -> None:
    index = PrefixIndex()
    index.apply("w0", batch(stored(*NAMES[:3])))
    index.apply("w1", batch(stored(NAMES[0], NAMES[2])))
    index.apply("w2", batch(stored(NAMES[1], NAMES[2])))
    assert index.match(NAMES) == {"w0": Overlap(device=3), "w1": Overlap(device=1)}
    assert index.match([]) == {}


def test_a_device_eviction_with_a_copy_on_host_stays_routable() -> None:
    index = PrefixIndex()
    index.apply(
        "w0", batch(stored(*NAMES[:4]), stored(NAMES[1], NAMES[3], tier=Tier.HOST), removed(NAMES[1], NAMES[3]))
    )
    assert index.match(NAMES) == {"w0": Overlap(device=2, host=2)}
    index.apply("w0", batch(stored(NAMES[3], tier=Tier.DISK), removed(NAMES[3], tier=Tier.HOST)))
    assert index.match(NAMES) == {"w0": Overlap(device=2, host=1, disk=1)}


def test_a_block_on_two_tiers_is_loaded_from_the_nearer_one() -> None:
    index = PrefixIndex()
    for tier, overlap in ((Tier.DISK, Overlap(disk=1)), (Tier.HOST, Overlap(host=1)), (Tier.DEVICE, Overlap(device=1))):
        index.apply("w0", batch(stored(NAMES[0], tier=tier)))
        assert index.match(NAMES) == {"w0": overlap}
    assert index.blocks("w0") == 1


def test_shared_storage_is_no_workers_own() -> None:
    index = PrefixIndex()
    index.apply("w0", batch(stored(*NAMES, tier=Tier.REMOTE)))
    assert index.match(NAMES) == {}
    assert len(index) == 0


def test_a_worker_is_synced_from_its_snapshot_until_doubt() -> None:
    index = PrefixIndex()
    index.apply("w0", batch(stored(NAMES[0])))
    assert not index.synced("w0")
    index.replace("w0", snapshot((NAMES[1], Tier.DEVICE)))
    assert index.synced("w0")
    index.doubt("w0")
    assert not index.synced("w0")
    assert index.match(NAMES[1:]) == {"w0": Overlap(device=1)}
    index.replace("w0", snapshot())
    index.drop("w0")
    assert not index.synced("w0")


def test_above_its_bound_the_largest_worker_gives_up_its_deepest_blocks() -> None:
    index = PrefixIndex(max_blocks=6)
    index.apply("w0", batch(stored(*NAMES[:5])))
    index.apply("w1", batch(stored(*NAMES[:3])))
    assert len(index) == 6
    assert index.forgotten == 2
    assert index.match(NAMES) == {"w0": Overlap(device=3), "w1": Overlap(device=3)}
    index.apply("w0", batch(removed(*NAMES[:5])))
    assert index.blocks("w0") == 0


@given(st.lists(st.tuples(st.sampled_from(WORKERS), names), max_size=10), st.integers(1, 6))
def test_the_bound_holds_and_never_invents_a_block(history: list[tuple[str, list[bytes]]], bound: int) -> None:
    small, whole = PrefixIndex(max_blocks=bound), PrefixIndex()
    for worker, chain in history:
        for index in (small, whole):
            index.apply(worker, batch(stored(*chain)))
        assert len(small) <= bound
    for worker, overlap in small.match(NAMES).items():
        assert overlap.blocks <= whole.match(NAMES)[worker].blocks
    assert small.forgotten >= len(whole) - len(small)


def test_slots_are_used_again() -> None:
    index = PrefixIndex()
    for restart in range(50):
        index.apply(f"w{restart}", batch(stored(NAMES[0])))
        index.drop(f"w{restart}")
    assert len(index._names) == 1
