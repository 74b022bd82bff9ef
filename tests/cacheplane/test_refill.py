"""A snapshot taken in piece by piece is the snapshot, and leaves everybody else their turn."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from cacheplane.index import PrefixIndex
from cacheplane.refill import AT_ONCE, refill
from cacheplane.subscriber import Subscriber
from cacheplane.wire import BlockStored, Snapshot, SnapshotBlock, Tier
from tests.cacheplane.oracle import batch, keys, stored

BRANCHES = st.lists(st.tuples(st.integers(1, 700), st.sampled_from([Tier.DEVICE, Tier.HOST, Tier.DISK])), max_size=6)


def name(number: int) -> bytes:
    return number.to_bytes(8, "big") * 2


def branches(*lengths: tuple[int, Tier]) -> Snapshot:
    """Each branch hangs on the middle of the one before."""
    blocks: list[SnapshotBlock] = []
    for length, tier in lengths:
        first = len(blocks)
        parent = blocks[first // 2].hash if blocks else None
        for number in range(first, first + length):
            blocks.append(SnapshotBlock(name(number + 1), parent, tier))
            parent = blocks[-1].hash
    return Snapshot(1, 5, 16, blocks)


@given(BRANCHES)
def test_every_block_comes_once_on_its_tier_behind_its_parent_in_bounded_pieces(
    lengths: list[tuple[int, Tier]],
) -> None:
    snapshot = branches(*lengths)
    listed = []
    for piece in refill(snapshot):
        assert 0 < sum(len(event.hashes) for event in piece.events if isinstance(event, BlockStored)) <= AT_ONCE
        for event in piece.events:
            assert isinstance(event, BlockStored)
            parents = [event.parent, *event.hashes[:-1]]
            listed += [(*both, event.tier) for both in zip(event.hashes, parents, strict=True)]
    assert listed == [(block.hash, block.parent, block.tier) for block in snapshot.blocks]


async def test_look_ups_go_on_while_a_large_snapshot_is_taken_in() -> None:
    snapshot, index = branches((20 * AT_ONCE, Tier.DEVICE)), PrefixIndex()
    names = [block.hash for block in snapshot.blocks]
    index.apply("w1", batch(stored(*names[:3])))
    index.apply("w0", batch(stored(name(0))))

    async def fetch() -> Snapshot:
        return snapshot

    restoring = asyncio.create_task(Subscriber("w0", "pub", "replay", index, fetch)._restore_by(fetch))
    seen = []
    while not restoring.done():
        await asyncio.sleep(0)
        found = index.match(keys(names))
        assert found["w1"].blocks == 3
        seen.append((found["w0"].blocks if "w0" in found else 0, index.synced("w0")))
    whole = len(names)
    assert len({blocks for blocks, _ in seen}) > 20
    assert sorted(seen) == seen
    assert all(blocks == whole for blocks, synced in seen if synced)
    assert (seen[-1], index.blocks("w0")) == ((whole, True), whole)
