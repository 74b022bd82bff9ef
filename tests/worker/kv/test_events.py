"""What memory tells: things in the order in which they happened, in events that every reader takes."""

import pytest

from cacheplane.wire import (
    MAX_HASHES,
    Batch,
    BlockRemoved,
    BlockStored,
    Tier,
    decode_batch,
    encode_batch,
)
from worker.kv import events
from worker.kv.events import EventLog
from worker.kv.radix import Node, RadixTree


def chain(blocks: int) -> list[Node]:
    tree = RadixTree()
    nodes = [tree.root]
    for number in range(blocks):
        edge = number.to_bytes(4, "little")
        nodes.append(tree.insert(nodes[-1], edge, number.to_bytes(16, "little")))
    return nodes[1:]


def test_neighbours_become_one_event_and_others_stay_in_order() -> None:
    log, nodes = EventLog(16), chain(4)
    for node in nodes[:3]:
        log.stored(node, Tier.DEVICE)
    log.stored(nodes[0], Tier.HOST)
    log.removed(nodes[2], Tier.DEVICE, "evicted")
    log.removed(nodes[1], Tier.DEVICE, "evicted")
    digests = [node.digest for node in nodes]
    assert log.take() == [
        BlockStored(digests[:3], None, 16),
        BlockStored(digests[:1], None, 16, Tier.HOST),
        BlockRemoved([digests[2], digests[1]], Tier.DEVICE, "evicted"),
    ]
    assert log.take() == []


def test_a_large_pool_is_told_of_in_several_events_that_say_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MAX_HASHES", 3)
    log, nodes = EventLog(16), chain(8)
    for node in nodes:
        log.stored(node, Tier.DEVICE)
    for node in reversed(nodes):
        log.removed(node, Tier.DEVICE, "orphaned")
    told = log.take()
    digests = [node.digest for node in nodes]
    assert [len(event.hashes) for event in told if isinstance(event, BlockStored | BlockRemoved)] == [3, 3, 2, 3, 3, 2]
    assert [event.parent for event in told if isinstance(event, BlockStored)] == [None, digests[2], digests[5]]
    assert [digest for event in told[3:] if isinstance(event, BlockRemoved) for digest in event.hashes] == digests[::-1]


def test_the_largest_event_is_one_that_the_wire_takes() -> None:
    log, nodes = EventLog(16), chain(MAX_HASHES + 1)
    for node in nodes:
        log.removed(node, Tier.DEVICE, "orphaned")
    batch = Batch(0.0, log.take())
    assert decode_batch(encode_batch(batch)) == batch
