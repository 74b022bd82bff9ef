"""A snapshot taken in piece by piece is the snapshot, and leaves everybody else their turn."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from cacheplane.index import PrefixIndex
from cacheplane.refill import AT_ONCE, pieces, refill
from cacheplane.subscriber import Subscriber
from cacheplane.wire import (
    AllBlocksCleared,
    Batch,
    BlockRemoved,
    BlockStored,
    Content,
    Event,
    Snapshot,
    SnapshotBlock,
    Tier,
    decode_snapshot,
    encode_snapshot,
)
from tests.cacheplane.oracle import Model, batch, check_books, held, keys, stored

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


RUNS = st.tuples(st.integers(0, 1_000), st.integers(0, 700)).map(lambda run: [name(run[0] + n) for n in range(run[1])])
EVENTS = st.lists(
    st.one_of(
        st.builds(BlockStored, RUNS, st.none() | st.just(name(1)), st.just(16)),
        st.builds(BlockRemoved, RUNS),
        st.just(AllBlocksCleared()),
    ),
    max_size=4,
)


@given(EVENTS)
def test_a_large_message_in_pieces_is_the_message(events: list[Event]) -> None:
    message, whole, index = Batch(1.0, events, None, 7, 3), Model(), PrefixIndex(max_blocks=10_000)
    whole.apply("w0", events)
    parts = list(pieces(message))
    for part in parts:
        assert sum(len(event.hashes) for event in part.events if not isinstance(event, AllBlocksCleared)) <= AT_ONCE
        assert (part.ts, part.dp_rank, part.epoch) == (1.0, None, 7)
        index.apply("w0", part)
    assert sum(part.skipped for part in parts) == 3
    names = [name(number) for number in range(1_700)]
    assert held(index, "w0", names) == {(block, tier) for _, block, tier in whole.held}
    check_books(index)
    follows = [event for part in parts for event in part.events if isinstance(event, BlockStored) and event.hashes]
    assert {event.parent for event in follows} <= {None, *names}


def test_blocks_that_say_what_they_hold_stay_together() -> None:
    event = BlockStored([name(n) for n in range(2_000)], None, 16, content=Content([0] * 32_000, []))
    assert [part.events for part in pieces(batch(event))] == [[event]]


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
    listed, index = branches((20 * AT_ONCE, Tier.DEVICE)), PrefixIndex()
    snapshot = decode_snapshot(encode_snapshot(listed))
    names = [block.hash for block in listed.blocks]
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
