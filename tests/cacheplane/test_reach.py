"""What is known of a prompt on each worker of a line."""

from cacheplane.fleet import Fleet
from cacheplane.guesses import Guesses
from cacheplane.identity import BlockChain, Namespace
from cacheplane.index import PrefixIndex
from cacheplane.reach import Prompt, reach
from cacheplane.report import LoadReport
from cacheplane.siblings import Siblings
from cacheplane.wire import Batch, BlockStored, Tier
from cacheplane.worker import Worker

CHAIN = BlockChain.of(range(16 * 6), Namespace(b"a" * 32))


def line_of(*names: str) -> Fleet:
    fleet = Fleet()
    for name in names:
        fleet.join(Worker(name, "", "m", "f"))
        fleet.observe(name, LoadReport(epoch=1), 0.0)
    return fleet


def test_tokens_by_tier_and_never_more_than_can_be_reused() -> None:
    fleet, index, siblings = line_of("w0", "w1"), PrefixIndex(), Siblings()
    for tier, blocks in ((Tier.DEVICE, slice(0, 2)), (Tier.HOST, slice(2, 4)), (Tier.DISK, slice(4, 6))):
        index.apply("w1", Batch(0.0, [BlockStored(list(CHAIN.hashes[blocks]), None, 16, tier)]))
    index.apply("elsewhere", Batch(0.0, [BlockStored(list(CHAIN.hashes), None, 16)]))
    siblings.remember(1, "w0", CHAIN.hashes, 0.0)
    siblings.remember(2, "elsewhere", CHAIN.hashes, 0.0)
    known = reach(Prompt(CHAIN, 96), fleet.line("m", 0.0), index, Guesses(), siblings, 0.0)
    assert [known.device.tolist(), known.host.tolist(), known.disk.tolist()] == [[0, 32], [0, 32], [0, 16]]
    assert known.sent.tolist() == [80, 0]  # the last of 96 tokens is always computed, and its block with it
    assert known.predicted.tolist() == [0, 80]
    assert known.without([1]).predicted.tolist() == known.nothing().predicted.tolist() == [0, 0]
    assert known.predicted.tolist() == [0, 80]


def test_guesses_count_only_where_events_do_not_tell() -> None:
    fleet, index, guesses = line_of("w0", "w1"), PrefixIndex(), Guesses()
    for name in ("w0", "w1"):
        guesses.computed(name, CHAIN, 0, 0.0)
    index.trust("w0")
    known = reach(Prompt(CHAIN, 97), fleet.line("m", 0.0), index, guesses, Siblings(), 0.0)
    assert known.predicted.tolist() == [0, 96]
