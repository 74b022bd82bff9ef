"""An engine that is not ours, from the bytes that it publishes to the decision."""

from typing import Any

import msgspec

from cacheplane.content import decode_engine_batch
from cacheplane.ranks import Ranks
from cacheplane.salts import EngineSalts
from cacheplane.translation import Translation
from tests.cacheplane.stage import ACME, Stage, prompt

PROMPT = prompt(1, 320)  # ten blocks of 32, twenty of ours
WINDOW = {"group_idx": 1, "kv_cache_spec_kind": "sliding_window", "kv_cache_spec_sliding_window": 64}


class Engine:
    """vLLM with two data-parallel ranks and a model of which some layers see a window of 64 tokens only."""

    def __init__(self, stage: Stage, name: str) -> None:
        salts = EngineSalts()
        self._salt, self._name = salts.give(ACME), name
        self._ranks = Ranks(Translation(stage.index, salts), 2)
        self._ranks.trust(name)

    def computes(self, rank: int, blocks: int) -> None:
        """The start of the prompt: stored by both groups, and the window forgets all but its last two blocks."""
        tokens, extra = PROMPT[: 32 * blocks], [[self._salt], *[None] * (blocks - 1)]
        stored: dict[str, Any] = {"type": "BlockStored", "block_hashes": list(range(1, blocks + 1))}
        stored |= {"parent_block_hash": None, "token_ids": tokens, "block_size": 32, "extra_keys": extra}
        whole = {"group_idx": 0, "kv_cache_spec_kind": "full_attention"}
        self.says(rank, stored | whole, stored | WINDOW)
        self.removes(rank, *range(1, blocks - 1), group=1)

    def removes(self, rank: int, *hashes: int, group: int) -> None:
        removed = {"type": "BlockRemoved", "block_hashes": list(hashes), "medium": "GPU", "group_idx": group}
        self.says(rank, removed)

    def says(self, rank: int, *events: dict[str, Any]) -> None:
        self._ranks.apply(self._name, decode_engine_batch(msgspec.msgpack.encode([0.0, list(events), rank])))


def test_a_window_that_forgot_its_beginning_still_has_the_whole_prefix_and_its_rank() -> None:
    stage = Stage("w0", "w1", ranks=2)
    engines = {name: Engine(stage, name) for name in ("w0", "w1")}
    engines["w0"].computes(rank=1, blocks=5)
    engines["w1"].computes(rank=0, blocks=8)
    decision = stage.decide(PROMPT)
    assert (decision.worker.id, decision.rank, decision.reason, decision.mode) == ("w1", 0, "prefix", "events")
    assert (decision.predicted_tokens, decision.cost.prefill_ms) == (8 * 32, 2 * 32)


def test_what_full_attention_lost_is_lost_whatever_the_window_still_has() -> None:
    stage = Stage("w0", ranks=2)
    engine = Engine(stage, "w0")
    engine.computes(rank=1, blocks=8)
    engine.removes(1, 4, 5, group=0)
    decision = stage.decide(PROMPT)
    assert (decision.rank, decision.predicted_tokens) == (1, 3 * 32)
