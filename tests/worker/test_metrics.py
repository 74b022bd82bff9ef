"""What a worker tells Prometheus: each figure against the requests that made it."""

from pathlib import Path

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from cacheplane.identity import BlockChain
from tests.documented import documented, offered
from tests.worker.kv.tiered import damage, quiet
from tests.worker.rig import ACME, BLOCK, Rig, ask
from tests.worker.schedules import below
from worker.draft_model import DraftModel
from worker.kv import KVLimits, SlotLayout
from worker.metrics import EngineCollector, registry_of
from worker.model import Model
from worker.ngrams import NgramIndex
from worker.speculation import Speculator
from worker.tokenizer import Vocabulary
from worker.wire import Retention, RetentionRange, Sampling

PROMPT = range(4 * BLOCK + 1)
LEASE = Retention([RetentionRange(priority=80, ttl_ms=60_000)], "one")


@pytest.fixture
def rig(tiny_model: Model, tiny_vocabulary: Vocabulary) -> Rig:
    """Six blocks on the device and six on host."""
    block_bytes = tiny_model.kv_shape.bytes_per_token * BLOCK
    limits = KVLimits(host_bytes=6 * block_bytes, lease_blocks=3)
    return Rig(tiny_model, tiny_vocabulary, blocks=6, limits=limits)


def scraped(rig: Rig) -> CollectorRegistry:
    collector = EngineCollector(rig.engine)
    collector.kv = rig.memory.figures()
    return registry_of(collector)


def value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(f"saltway_worker_{name}", labels)


def test_every_metric_is_documented_and_no_other(rig: Rig) -> None:
    assert offered(scraped(rig)) == documented("Worker")


def test_tokens_are_counted_where_they_came_from(rig: Rig) -> None:
    rig.complete(ask(PROMPT))
    rig.complete(ask(PROMPT))
    rig.complete(ask([100 + token for token in PROMPT]))
    rig.complete(ask(PROMPT))
    registry = scraped(rig)
    by_tier = [value(registry, "reused_tokens_total", tier=tier) for tier in ("device", "host", "disk")]
    assert by_tier[1]
    assert sum(tokens or 0 for tokens in by_tier) == value(registry, "cached_tokens_total") == 2 * 4 * BLOCK
    assert value(registry, "prefilled_tokens_total") == 4 * len(PROMPT) - 2 * 4 * BLOCK
    assert value(registry, "preemptions_total") == 0


def test_drafts_are_told_by_their_source(tiny_model: Model, tiny_vocabulary: Vocabulary) -> None:
    draft_model = DraftModel.beside(tiny_model, tiny_model, slots=4)
    speculator = Speculator(4, adaptive=False, index=lambda: NgramIndex((1,)), draft_model=draft_model)
    rig = Rig(tiny_model, tiny_vocabulary, speculator=speculator)
    rig.complete(ask([*PROMPT, *PROMPT], sampling=Sampling(max_tokens=60, temperature=1, seed=1, ignore_eos=True)))
    registry, told = scraped(rig), {}
    for outcome in ("proposed", "accepted"):
        for source in ("ngram", "model"):
            told[source, outcome] = value(registry, "drafts_total", source=source, outcome=outcome) or 0
    assert told["model", "accepted"] == told["model", "proposed"] > 0
    assert told["ngram", "accepted"] < told["ngram", "proposed"]
    assert value(registry, "drafted_tokens_total") == told["ngram", "proposed"] + told["model", "proposed"]
    assert value(registry, "accepted_tokens_total") == told["ngram", "accepted"] + told["model", "accepted"]
    assert value(registry, "draft_kv_bytes") == draft_model.kv_bytes


def test_blocks_and_bytes_are_told_by_tier(rig: Rig) -> None:
    rig.complete(ask(PROMPT))
    rig.complete(ask([100 + token for token in PROMPT]))
    registry, block_bytes = scraped(rig), rig.memory.layout.shape.bytes_per_token * BLOCK
    held = rig.memory.pool.total - rig.memory.pool.free
    assert value(registry, "kv_blocks", tier="device") == held == 6
    assert value(registry, "kv_bytes", tier="device") == held * block_bytes
    assert value(registry, "kv_capacity_bytes", tier="device") == 6 * block_bytes
    assert value(registry, "kv_blocks", tier="host") == 2
    assert value(registry, "kv_bytes", tier="host") == 2 * block_bytes
    assert value(registry, "kv_capacity_bytes", tier="disk") == 0
    assert value(registry, "evicted_blocks_total", tier="device") == 2
    assert value(registry, "evicted_blocks_total", tier="host") == 0
    assert value(registry, "moved_blocks_total", move="offloaded") == 2


def test_what_the_disk_did_not_keep_is_told_by_kind(
    tiny_model: Model, tiny_vocabulary: Vocabulary, tmp_path: Path
) -> None:
    limits = below(SlotLayout, tiny_model, tmp_path, host=0, disk=20)
    rig = Rig(tiny_model, tiny_vocabulary, blocks=4, limits=limits)
    rig.complete(ask(PROMPT))
    rig.complete(ask([100 + token for token in PROMPT]))
    quiet(rig.memory)
    damage(tmp_path / f"{BlockChain.of(PROMPT, ACME, BLOCK).hashes[0].hex()}.kv")
    rig.memory.reuse.prefill_tps = 0.0  # loading pays
    rig.complete(ask(PROMPT))
    registry = scraped(rig)
    told = [value(registry, "disk_faults_total", kind=kind) for kind in ("corrupt", "refused", "failed")]
    assert told == [1, 0, 0]
    rig.memory.shut()


def test_leases_are_told_by_tag_tier_and_outcome(rig: Rig) -> None:
    leased = msgspec.structs.replace(ask(PROMPT, tag="acme"), retention=LEASE)
    rig.complete(leased)
    registry = scraped(rig)
    assert value(registry, "leases_total", tag="acme", outcome="granted") == 3
    assert value(registry, "leases_refused_total", tag="acme", tier="device") == 1
    assert value(registry, "leased_blocks", tag="acme", tier="device") == 3
    assert value(registry, "leased_blocks", tag="acme", tier="host") == 0
    for start in (100, 200):
        rig.complete(ask([start + token for token in PROMPT]))
    registry = scraped(rig)
    tiers = [value(registry, "leased_blocks", tag="acme", tier=tier) for tier in ("device", "host")]
    ended = value(registry, "leases_total", tag="acme", outcome="displaced")
    assert sum(tier or 0 for tier in tiers) + (ended or 0) == 3
