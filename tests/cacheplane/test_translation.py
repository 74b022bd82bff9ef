"""Blocks of an engine under our names: by tokens and the salt that we gave, and never by a guess."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from cacheplane.content import decode_engine_batch
from cacheplane.identity import BlockChain, Namespace
from cacheplane.index import Overlap, PrefixIndex
from cacheplane.salts import EngineSalts
from cacheplane.translation import Translation
from cacheplane.wire import Batch, BlockStored, Snapshot
from tests.cacheplane.oracle import restore
from tests.cacheplane.recordings import recorded

ACME, GLOBEX = Namespace(b"a" * 32), Namespace(b"g" * 32)
PROMPT = list(range(1000, 1128))  # four blocks of 32, eight of ours


class Engine:
    """What vLLM would publish, read as from its wire, translated into an index."""

    def __init__(self, unsalted: Namespace | None = None, max_blocks: int = 100) -> None:
        self.index, self.salts = PrefixIndex(max_blocks=1_000), EngineSalts()
        self.translation = Translation(self.index, self.salts, unsalted, max_blocks=max_blocks)
        self.acme = self.salts.give(ACME)

    def says(self, *events: dict[str, Any]) -> None:
        self.translation.apply("w0", decode_engine_batch(msgspec.msgpack.encode([0.0, list(events), 0])))

    def overlap(self, namespace: Namespace = ACME, tokens: list[int] = PROMPT) -> Overlap:
        return self.index.match(BlockChain.of(tokens, namespace).keys).get("w0", Overlap())


def stored(
    hashes: list[int], tokens: list[int], parent: int | None = None, size: int = 32, **more: Any
) -> dict[str, Any]:
    event = {"type": "BlockStored", "block_hashes": hashes, "parent_block_hash": parent, "token_ids": tokens}
    return event | {"block_size": size, "medium": "GPU", "group_idx": 0, "kv_cache_spec_kind": "full_attention"} | more


def removed(*hashes: int, **more: Any) -> dict[str, Any]:
    return {"type": "BlockRemoved", "block_hashes": list(hashes), "medium": "GPU", "group_idx": 0} | more


def salted(salt: str, blocks: int) -> dict[str, Any]:
    return {"extra_keys": [[salt], *[None] * (blocks - 1)]}


def test_a_block_of_32_tokens_is_two_of_ours_and_goes_by_the_engines_hash() -> None:
    engine = Engine()
    engine.says(stored([1, 2], PROMPT[:64], **salted(engine.acme, 2)))
    engine.says(stored([3], PROMPT[64:96], parent=2), stored([4], PROMPT[96:], parent=3))
    assert engine.overlap() == Overlap(device=8)
    assert engine.overlap(GLOBEX) == Overlap()
    engine.says(removed(3))
    assert engine.overlap() == Overlap(device=4)
    engine.says(stored([3], PROMPT[64:96], parent=2))
    assert engine.overlap() == Overlap(device=8)
    engine.says({"type": "AllBlocksCleared"})
    assert engine.overlap() == Overlap()
    engine.says(stored([5], PROMPT[64:96], parent=2))
    assert (engine.index.blocks("w0"), engine.translation.unnamed) == (0, {"parent": 1})


def test_equal_tokens_under_two_salts_are_two_chains() -> None:
    engine = Engine()
    globex = engine.salts.give(GLOBEX)
    engine.says(stored([1], PROMPT[:32], **salted(engine.acme, 1)), stored([2], PROMPT[:32], **salted(globex, 1)))
    assert (engine.overlap(ACME).device, engine.overlap(GLOBEX).device) == (2, 2)
    engine.says(removed(1))
    assert (engine.overlap(ACME).device, engine.overlap(GLOBEX).device) == (0, 2)


@pytest.mark.parametrize(
    ("event", "obstacle"),
    [
        (stored([1], PROMPT[:32], **salted("not ours", 1)), "salt"),
        (stored([1], PROMPT[:32]), "salt"),
        (stored([1], PROMPT[:32], extra_keys=[["an image", "another"]]), "salt"),
        (stored([1], PROMPT[:32], parent=77), "parent"),
        (stored([1], PROMPT[:24], size=24), "size"),
        (stored([1], PROMPT[:8], size=8), "size"),
        (stored([1], PROMPT[:31]), "size"),
        (stored([1], []), "content"),
        (stored([1], [[1, 2]] * 32), "content"),  # type: ignore[list-item]
    ],
)
def test_what_cannot_be_named_is_counted_and_not_guessed(event: dict[str, Any], obstacle: str) -> None:
    engine = Engine()
    engine.says(event)
    assert (len(engine.index), engine.translation.unnamed) == (0, {obstacle: 1})


def test_an_image_ends_what_can_be_named_of_a_prompt() -> None:
    engine = Engine()
    engine.says(stored([1, 2, 3], PROMPT[:96], extra_keys=[[engine.acme], ["image"], None]))
    assert (engine.overlap(), engine.translation.unnamed) == (Overlap(device=2), {"content": 2})


def test_without_salts_an_engine_that_nobody_shares_has_one_namespace() -> None:
    engine = Engine(unsalted=ACME)
    engine.says(stored([1], PROMPT[:32]))
    engine.says(stored([2], PROMPT[:32], lora_name="adapter", extra_keys=[["adapter"]]))
    assert (engine.overlap(), engine.translation.unnamed) == (Overlap(device=2), {"salt": 1})


def test_an_adapter_is_part_of_the_namespace_of_a_salt() -> None:
    engine = Engine()
    lora: dict[str, Any] = {"lora_name": "adapter", "extra_keys": [["adapter", engine.acme], ["adapter"]]}
    engine.says(stored([1, 2], PROMPT[:64], **lora))
    assert engine.overlap() == Overlap(device=4)


def test_a_window_neither_fakes_nor_breaks_a_prefix() -> None:
    engine = Engine()
    window: dict[str, Any] = {
        "group_idx": 1,
        "kv_cache_spec_kind": "sliding_window",
        "kv_cache_spec_sliding_window": 64,
    }
    engine.says(stored([1, 2], PROMPT[:64], **salted(engine.acme, 2)))
    engine.says(stored([1, 2, 3], PROMPT[:96], **salted(engine.acme, 3), **window))
    assert engine.overlap() == Overlap(device=4)
    engine.says(removed(1, group_idx=1))
    assert engine.overlap() == Overlap(device=4)


def test_a_copy_on_host_is_told_of_without_tokens() -> None:
    engine = Engine()
    engine.says(stored([1, 2], PROMPT[:64], **salted(engine.acme, 2)))
    engine.says(stored([2, 9], [], parent=1, medium="CPU"), removed(2))
    assert (engine.overlap(), engine.translation.unnamed) == (Overlap(device=2, host=2), {"content": 1})
    engine.says(removed(2, medium="CPU"), removed(2))
    assert engine.overlap() == Overlap(device=2)


def test_its_memory_is_bounded_and_a_removal_makes_room() -> None:
    engine = Engine(max_blocks=2)
    engine.says(stored([1, 2, 3], PROMPT[:96], **salted(engine.acme, 3)))
    assert (engine.overlap(), engine.translation.unnamed) == (Overlap(device=4), {"full": 1})
    engine.says(removed(2), stored([2], PROMPT[32:64], parent=1))
    assert engine.overlap() == Overlap(device=4)


def test_a_stream_that_begins_anew_or_ends_takes_the_engines_hashes_with_it() -> None:
    engine = Engine()
    begins: list[Callable[[], object]] = [
        lambda: restore(engine.translation, "w0", Snapshot(0, -1, 0, [])),
        lambda: engine.translation.drop("w0"),
    ]
    for begin in begins:
        engine.says(stored([1], PROMPT[:32], **salted(engine.acme, 1)))
        engine.translation.doubt("w0")
        assert engine.overlap() == Overlap(device=2)
        begin()
        assert engine.overlap() == Overlap()
    assert engine.translation._known == {}


def test_a_recorded_prompt_is_found_by_its_tokens_and_salt() -> None:
    index, salts = PrefixIndex(max_blocks=1_000), EngineSalts()
    salts._namespaces["tenantA"] = ACME  # as it was when the frames were recorded
    batch = decode_engine_batch(recorded("salted").payload)
    Translation(index, salts).apply("w0", batch)
    (event,) = batch.events
    assert isinstance(event, BlockStored)
    assert event.content is not None
    assert index.match(BlockChain.of(event.content.tokens, ACME).keys) == {"w0": Overlap(device=16)}


def test_a_batch_keeps_what_the_stream_needs_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Batch] = []

    index = PrefixIndex(max_blocks=1)
    monkeypatch.setattr(index, "apply", lambda _, batch: seen.append(batch))
    Translation(index, EngineSalts()).apply("w0", Batch(1.0, [], 3, None, 2))
    assert seen == [Batch(1.0, [], 3, None, 2)]


def test_a_salt_commits_to_its_namespace_and_does_not_show_it() -> None:
    salts = EngineSalts(max_salts=2)
    acme = salts.give(ACME)
    assert (len(acme), salts.give(ACME), acme in ACME.hex) == (32, acme, False)
    assert salts.namespace(acme) == ACME
    salts.give(GLOBEX)
    salts.give(ACME)
    salts.give(Namespace(b"x" * 32))
    assert (salts.namespace(acme), salts.namespace(EngineSalts().give(GLOBEX)), len(salts)) == (ACME, None, 2)
