"""Cases by what became of blocks, of their worker or of the salt behind them."""

from cacheplane.attribution import Reason
from cacheplane.wire import Tier
from tests.cacheplane.attribution.casebook import Casebook
from tests.cacheplane.attribution.prompts import ANSWER, MORE, OTHER, QUESTION, TOOLS, said
from tests.cacheplane.attribution.world import BLOCK, Told, World
from tests.cacheplane.oracle import restore

R = Reason
FATES = Casebook()
case = FATES.case

# salt_rotated


@case("the same prompt after a rotation", R.SALT_ROTATED)
def _() -> Told:
    world = World()
    world.ask(*said(QUESTION), tools=TOOLS)
    world.epochs["acme"] = 1
    return world.ask(*said(QUESTION), tools=TOOLS)


@case("a next turn after a rotation", R.SALT_ROTATED, R.FIRST_SEEN)
def _() -> Told:
    world = World()
    world.ask(*said(QUESTION), tools=TOOLS)
    world.epochs["acme"] = 1
    return world.ask(*said(QUESTION, ANSWER, MORE), tools=TOOLS)


@case("a prompt of two rotations ago", R.SALT_ROTATED)
def _() -> Told:
    world = World()
    world.ask(*said(QUESTION), tools=TOOLS)
    world.epochs["acme"] = 2
    return world.ask(*said(QUESTION), tools=TOOLS)


# evicted, tier_dropped


@case("a pool too small for two prompts", R.EVICTED)
def _() -> Told:
    world = World(capacity=16)
    world.ask(*said(QUESTION), tools=TOOLS)
    world.ask(*said(MORE, system=OTHER))
    return world.ask(*said(QUESTION), tools=TOOLS)


@case("the end of a prompt evicted", R.EVICTED)
def _() -> Told:
    world = World()
    world.ask(*said(QUESTION), tools=TOOLS)
    world.evict("w0", blocks=5)
    told = world.ask(*said(QUESTION), tools=TOOLS)
    assert told.of(R.EVICTED) in (4 * BLOCK, 5 * BLOCK)
    return told


@case("a cleared worker", R.EVICTED)
def _() -> Told:
    world = World()
    world.ask(*said(QUESTION))
    world.clear("w0")
    return world.ask(*said(QUESTION))


@case("an eviction that nobody heard of, seen in the next snapshot", R.EVICTED)
def _() -> Told:
    world = World()
    world.ask(*said(QUESTION))
    world.caches["w0"].blocks.clear()
    world.departures.doubt("w0")
    restore(world.departures, "w0", world.snapshot("w0"))
    return world.ask(*said(QUESTION))


@case("an eviction that is no longer remembered", R.EVICTED)
def _() -> Told:
    world = World()
    world.ask(*said(QUESTION))
    world.caches["w0"].blocks.clear()
    world.index.drop("w0")
    return world.ask(*said(QUESTION))


for tier in (Tier.HOST, Tier.DISK):

    @case(f"the last copy dropped from {tier.name.lower()}", R.TIER_DROPPED)
    def _(tier: Tier = tier) -> Told:
        world = World()
        world.ask(*said(QUESTION), tools=TOOLS)
        world.offload("w0", tier)
        world.evict("w0")
        return world.ask(*said(QUESTION), tools=TOOLS)


# routed_away


@case("the worker that has it is busy", R.ROUTED_AWAY)
def _() -> Told:
    world = World("w0", "w1")
    home = world.ask(*said(QUESTION), tools=TOOLS).decision.worker.id
    world.report(home, queued_prefill_tokens=100_000)
    return world.ask(*said(QUESTION), tools=TOOLS)


@case("the worker that has it was tried and would not take it", R.ROUTED_AWAY)
def _() -> Told:
    world = World("w0", "w1")
    home = world.ask(*said(QUESTION), tools=TOOLS).decision.worker.id
    return world.ask(*said(QUESTION), tools=TOOLS, exclude=[home])


@case("a placement that looks at load alone", R.ROUTED_AWAY, R.FIRST_SEEN)
def _() -> Told:
    world = World("w0", "w1", strategy="load-only")
    home = world.ask(*said(QUESTION), tools=TOOLS).decision.worker.id
    world.report(home, queued_prefill_tokens=100_000)
    return world.ask(*said(QUESTION, ANSWER, MORE), tools=TOOLS)


# worker_lost


@case("a worker that fell silent", R.WORKER_LOST)
def _() -> Told:
    world = World("w0", "w1")
    home = world.ask(*said(QUESTION), tools=TOOLS).decision.worker.id
    world.fleet.failed(home, world.now)
    return world.ask(*said(QUESTION), tools=TOOLS)


@case("a worker that is draining", R.WORKER_LOST)
def _() -> Told:
    world = World("w0", "w1")
    home = world.ask(*said(QUESTION), tools=TOOLS).decision.worker.id
    world.report(home, state="draining")
    return world.ask(*said(QUESTION), tools=TOOLS)


@case("a worker that left", R.WORKER_LOST)
def _() -> Told:
    world = World("w0", "w1")
    world.leave(world.ask(*said(QUESTION), tools=TOOLS).decision.worker.id)
    return world.ask(*said(QUESTION), tools=TOOLS)


@case("a worker that started again with nothing", R.WORKER_LOST, R.FIRST_SEEN)
def _() -> Told:
    world = World()
    world.ask(*said(QUESTION), tools=TOOLS)
    world.leave("w0")
    world.join("w0")
    return world.ask(*said(QUESTION, ANSWER, MORE), tools=TOOLS)


# not_stored


@case("a prompt that was not to be stored, again", R.NOT_STORED)
def _() -> Told:
    world = World()
    world.ask(*said(QUESTION), tools=TOOLS, store=False)
    return world.ask(*said(QUESTION), tools=TOOLS)


@case("a next turn of a conversation that is not stored", R.NOT_STORED, R.FIRST_SEEN)
def _() -> Told:
    world = World()
    world.ask(*said(QUESTION), store=False)
    return world.ask(*said(QUESTION, ANSWER, MORE), store=False)


@case("the second of two at once", R.NOT_STORED)
def _() -> Told:
    world = World()
    world.open(*said(QUESTION), tools=TOOLS)
    return world.open(*said(QUESTION), tools=TOOLS).told


@case("a retry of what failed half-way", R.NOT_STORED)
def _() -> Told:
    world = World()
    world.close(world.open(*said(QUESTION), tools=TOOLS), served=False)
    return world.ask(*said(QUESTION), tools=TOOLS)


# parity


@case("a worker that lost its blocks and says nothing", R.PARITY)
def _() -> Told:
    world = World()
    world.ask(*said(QUESTION), tools=TOOLS)
    world.caches["w0"].mute = True
    world.evict("w0")
    return world.ask(*said(QUESTION), tools=TOOLS)


@case("a worker that lost half of them and says nothing", R.PARITY, R.FIRST_SEEN)
def _() -> Told:
    world = World()
    world.ask(*said(QUESTION), tools=TOOLS)
    world.caches["w0"].mute = True
    world.evict("w0", blocks=10)
    return world.ask(*said(QUESTION, ANSWER, MORE), tools=TOOLS)
