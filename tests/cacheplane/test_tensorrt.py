"""TensorRT-LLM's events: what its JSON means, and what is left after gaps, restarts and windows."""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cacheplane.identity import BlockChain, Namespace
from cacheplane.index import Overlap, PrefixIndex
from cacheplane.salts import EngineSalts
from cacheplane.tensorrt import Poller, decode_events
from cacheplane.translation import Translation
from cacheplane.wire import WireError

ACME = Namespace(b"a" * 32)
PROMPT = list(range(500, 596))  # three blocks of 32


def block(hash_: int, tokens: list[int], level: int = 0, **more: Any) -> dict[str, Any]:
    ids = [{"type": "unique_token", "token_id": token, "token_extra_id": 0} for token in tokens]
    return {"type": "stored_block", "block_hash": hash_, "tokens": ids, "cache_level": level, "priority": 35} | more


def stored(*blocks: dict[str, Any], parent: int | None = None) -> dict[str, Any]:
    return {"type": "stored", "parent_hash": parent, "blocks": list(blocks)}


def removed(*hashes: int) -> dict[str, Any]:
    return {"type": "removed", "block_hashes": list(hashes)}


def moved(hash_: int, old: int, new: int) -> dict[str, Any]:
    level = {"type": "event_diff", "old_value": old, "new_value": new}
    return {"type": "updated", "block_hash": hash_, "cache_level": level, "priority": None}


CREATED = {"type": "created", "num_blocks_per_cache_level": [100, 50]}
WHOLE = stored(block(1, PROMPT[:32]), block(2, PROMPT[32:64]), block(3, PROMPT[64:]))


class Engine:
    """Hands out what `says` queued, in one answer a poll; `loses` drops events as its ring would."""

    def __init__(self, ranks: int = 1) -> None:
        self.index, self.salts = PrefixIndex(max_blocks=1_000), EngineSalts()
        translation = Translation(self.index, self.salts, unsalted=ACME)
        self.time = 0.0
        self.poller = Poller("w0", self.fetch, translation, ranks, clock=lambda: self.time)
        self.next_id, self.queue, self.away = 0, list[dict[str, Any]](), False
        self.says(CREATED)

    async def fetch(self) -> bytes:
        if self.away:
            raise ConnectionError
        answer, self.queue = self.queue, []
        return json.dumps(answer).encode()

    def says(self, *events: dict[str, Any], window: int = 4096, **more: Any) -> None:
        for data in events:
            self.queue.append({"event_id": self.next_id, "data": data, "window_size": window} | more)
            self.next_id += 1

    def loses(self, count: int) -> None:
        self.next_id += count

    def restarts(self) -> None:
        self.next_id, self.queue = 0, []
        self.says(CREATED)

    async def overlap(self) -> Overlap:
        assert await self.poller.poll()
        return self.index.match(BlockChain.of(PROMPT, ACME).keys).get("w0", Overlap())


async def test_a_prompt_is_stored_moved_to_host_and_removed() -> None:
    engine = Engine()
    engine.says(WHOLE)
    assert await engine.overlap() == Overlap(device=6)
    engine.says(moved(3, 0, 1))
    assert await engine.overlap() == Overlap(device=4, host=2)
    engine.says(removed(3, 2))
    assert await engine.overlap() == Overlap(device=2)
    assert engine.index.synced("w0")


async def test_a_block_that_is_not_full_is_counted_and_a_salt_names_its_namespace() -> None:
    engine = Engine()
    salt = engine.salts.give(Namespace(b"s" * 32))
    engine.says(stored(block(1, PROMPT[:32], cache_salt=salt), block(2, PROMPT[32:50])))
    assert await engine.overlap() == Overlap()
    assert engine.index.match(BlockChain.of(PROMPT, Namespace(b"s" * 32)).keys)["w0"] == Overlap(device=2)


@pytest.mark.parametrize(
    "image",
    [
        {"mm_keys": [{"type": "mm_key", "hash": "01" * 32, "start_offset": 0}]},
        {"tokens": [{"type": "unique_token", "token_id": 7, "token_extra_id": 9}] * 32},
    ],
    ids=lambda image: next(iter(image)),
)
@pytest.mark.parametrize("at", [0, 1])
async def test_a_block_with_an_image_in_it_has_no_name(image: dict[str, Any], at: int) -> None:
    """Of two images the tokens are the same."""
    engine = Engine()
    blocks = [block(number, PROMPT[32 * number : 32 * (number + 1)], mm_keys=[]) for number in range(3)]
    blocks[at] |= image
    engine.says(stored(*blocks))
    assert await engine.overlap() == Overlap(device=2 * at)
    assert engine.index.blocks("w0") == 2 * at


async def test_lost_events_cost_what_was_known() -> None:
    engine = Engine()
    engine.says(WHOLE)
    await engine.poller.poll()
    engine.loses(2)
    engine.says(stored(block(9, PROMPT[:32])))
    assert await engine.overlap() == Overlap(device=2)
    assert (engine.poller.counters.gaps, engine.poller.counters.restarts) == (1, 0)


async def test_ids_that_begin_anew_are_a_restart() -> None:
    engine = Engine()
    engine.says(WHOLE)
    await engine.poller.poll()
    engine.restarts()
    assert await engine.overlap() == Overlap()
    engine.says(WHOLE)
    assert await engine.overlap() == Overlap(device=6)
    assert (engine.poller.counters.gaps, engine.poller.counters.restarts) == (0, 1)


async def test_a_shorter_window_is_no_prefix() -> None:
    engine = Engine()
    engine.says(CREATED, window=512)
    engine.says(WHOLE, window=512)
    assert await engine.overlap() == Overlap()
    engine.says(WHOLE)
    engine.says(removed(1), window=512)
    assert await engine.overlap() == Overlap(device=6)
    assert engine.poller.counters.windowed == 3


async def test_a_longer_window_heard_of_later_takes_what_was_taken_for_a_prefix() -> None:
    engine = Engine()
    engine.queue = []
    engine.says(WHOLE, window=512)
    assert await engine.overlap() == Overlap(device=6)
    engine.says(CREATED)
    assert await engine.overlap() == Overlap()


async def test_each_rank_has_ids_and_blocks_of_its_own() -> None:
    engine = Engine(ranks=2)
    engine.queue = [
        {"event_id": id_, "data": data, "window_size": 4096, "attention_dp_rank": rank}
        for rank in (0, 1, 2)
        for id_, data in enumerate((CREATED, WHOLE if rank else stored(block(1, PROMPT[:32]))))
    ]
    await engine.poller.poll()
    found = engine.index.match(BlockChain.of(PROMPT, ACME).keys)
    assert found == {"w0/0": Overlap(device=2), "w0/1": Overlap(device=6)}
    assert (engine.poller.counters.gaps, engine.poller.counters.unknown) == (0, 2)


async def test_an_engine_that_is_away_is_asked_at_a_slower_pace_and_loses_nothing() -> None:
    engine = Engine()
    engine.says(WHOLE)
    await engine.poller.poll()
    engine.away = True
    waits = []
    for _ in range(4):
        assert not await engine.poller.poll()
        waits.append(engine.poller._pace.wait)
        engine.time += waits[-1]
    assert waits == sorted(set(waits))
    engine.away = False
    assert await engine.overlap() == Overlap(device=6)
    assert (engine.poller.counters.failures, engine.poller.counters.restarts) == (4, 0)


async def test_an_unknown_kind_is_counted() -> None:
    engine = Engine()
    engine.says({"type": "pinned"}, WHOLE)
    assert await engine.overlap() == Overlap(device=6)
    assert engine.poller.counters.unknown == 1


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"{}",
        b"[{}]",
        b'[{"event_id": -1, "data": {"type": "created"}}]',
        b'[{"event_id": 1, "data": {"type": "stored", "blocks": [{}]}}]',
        b'[{"event_id": 1, "data": []}]',
        b"[" * 100_000,
    ],
)
def test_what_cannot_be_read_is_a_wire_error(payload: bytes) -> None:
    with pytest.raises(WireError):
        decode_events(payload)


TOKENS = {number: [number] * 32 for number in range(4)}
steps = st.lists(
    st.tuples(st.sampled_from(["store", "remove", "move", "poll", "lose", "restart", "outage"]), st.integers(0, 3)),
    max_size=30,
)


class History:
    """An engine, what it caches (level by block), and what of it was told since the last gap or restart."""

    def __init__(self) -> None:
        self.engine = Engine()
        self.cache: dict[int, int] = {}
        self.told: dict[int, int] = {}

    async def step(self, verb: str, number: int) -> None:
        match verb:
            case "store" if number not in self.cache:
                self.cache[number] = self.told[number] = 0
                self.engine.says(stored(block(number, TOKENS[number])))
            case "remove" if number in self.cache:
                del self.cache[number]
                self.told.pop(number, None)
                self.engine.says(removed(number))
            case "move" if number in self.cache:
                old = self.cache[number]
                self.cache[number] = 1 - old
                self.told.update({number: 1 - old} if number in self.told else {})
                self.engine.says(moved(number, old, 1 - old))
            case "poll" | "outage":
                self.engine.away = verb == "outage"
                await self.engine.poller.poll()
                self.engine.away = False
            case "lose":
                self.engine.loses(1)
                self.engine.says(CREATED)
                self.told.clear()
            case "restart":
                self.engine.restarts()
                self.cache.clear()
                self.told.clear()

    def known(self, number: int) -> Overlap:
        return self.engine.index.match(BlockChain.of(TOKENS[number], ACME).keys).get("w0", Overlap())


@given(steps)
def test_the_index_ends_equal_to_what_was_told_since_the_last_gap(history: list[tuple[str, int]]) -> None:
    async def play() -> None:
        world = History()
        for verb, number in [*history, ("poll", 0)]:
            await world.step(verb, number)
        levels = {0: Overlap(device=2), 1: Overlap(host=2), None: Overlap()}
        assert [world.known(number) for number in TOKENS] == [levels[world.told.get(number)] for number in TOKENS]

    asyncio.run(play())
