"""The worker's figures for Prometheus, read from the engine when they are asked for."""

from collections.abc import Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from worker.drafting import SOURCES
from worker.engine import Engine
from worker.kv.accounts import Tally
from worker.kv.figures import KVFigures

_TIERS = ("device", "host", "disk")


class EngineCollector(Collector):
    """Both are set before each scrape.

    kv      what the engine's thread said of its memory last, since only that thread may look
    tasks   asyncio tasks of the process
    """

    def __init__(self, engine: Engine) -> None:
        self.kv: KVFigures | None = None
        self.tasks = 0
        self._engine = engine

    def collect(self) -> Iterator[Metric]:
        counters, load = self._engine.counters, self._engine.load
        yield CounterMetricFamily("saltway_worker_steps", "Engine steps", counters.steps)
        yield CounterMetricFamily("saltway_worker_requests", "Requests taken", counters.requests)
        yield CounterMetricFamily("saltway_worker_aborted", "Requests aborted", counters.aborted)
        yield CounterMetricFamily("saltway_worker_prompt_tokens", "Prompt tokens asked for", counters.prompt_tokens)
        yield CounterMetricFamily("saltway_worker_cached_tokens", "Prompt tokens reused", self._engine.cached_tokens)
        reused = CounterMetricFamily("saltway_worker_reused_tokens", "Prompt tokens reused by tier", labels=["tier"])
        _add_tiers(reused, self._engine.work.reused)
        yield reused
        partial = self._engine.work.partial
        yield CounterMetricFamily("saltway_worker_partial_tokens", "Prompt tokens reused from parts of blocks", partial)
        prefilled, preempted = self._engine.work.prefilled, self._engine.work.preemptions
        yield CounterMetricFamily("saltway_worker_prefilled_tokens", "Tokens computed that were not sampled", prefilled)
        yield CounterMetricFamily("saltway_worker_preemptions", "Sequences that lost their slot", preempted)
        yield CounterMetricFamily("saltway_worker_generated_tokens", "Tokens generated", counters.generated_tokens)
        yield CounterMetricFamily("saltway_worker_drafted_tokens", "Draft tokens computed", counters.drafted_tokens)
        yield CounterMetricFamily("saltway_worker_accepted_tokens", "Draft tokens accepted", counters.accepted_tokens)
        drafts = CounterMetricFamily("saltway_worker_drafts", "Draft tokens by source", labels=["source", "outcome"])
        for source in SOURCES:
            drafts.add_metric([source, "proposed"], counters.drafted[source])
            drafts.add_metric([source, "accepted"], counters.accepted[source])
        yield drafts
        most = self._engine.draft_kv_bytes
        yield GaugeMetricFamily("saltway_worker_draft_kv_bytes", "The most that a draft model's KV takes", most)
        yield GaugeMetricFamily("saltway_worker_tasks", "asyncio tasks of the process", self.tasks)
        yield GaugeMetricFamily("saltway_worker_waiting", "Sequences that wait for a slot", load.waiting)
        yield GaugeMetricFamily("saltway_worker_running", "Sequences that hold a slot", load.running)
        yield GaugeMetricFamily("saltway_worker_free_blocks", "KV blocks free", load.free_blocks)
        yield GaugeMetricFamily("saltway_worker_blocks", "KV blocks in all", self._engine.total_blocks)
        yield GaugeMetricFamily("saltway_worker_prefill_tps", "Prefill tokens per second", counters.prefill_tps)
        yield GaugeMetricFamily("saltway_worker_decode_step_ms", "Decode step, in ms", counters.decode_step_ms)
        if self.kv is not None:
            yield from _of_memory(self.kv)


def _of_memory(kv: KVFigures) -> Iterator[Metric]:
    for name, text, values in (
        ("kv_blocks", "KV blocks held", kv.blocks),
        ("kv_bytes", "Bytes of KV held", kv.bytes),
        ("kv_capacity_bytes", "Bytes of KV that fit", kv.capacity),
    ):
        held = GaugeMetricFamily(f"saltway_worker_{name}", text, labels=["tier"])
        _add_tiers(held, values)
        yield held
    evicted = CounterMetricFamily("saltway_worker_evicted_blocks", "KV blocks that made room", labels=["tier"])
    _add_tiers(evicted, kv.evicted)
    yield evicted
    faults = CounterMetricFamily("saltway_worker_disk_faults", "KV blocks that disk did not keep", labels=["kind"])
    for kind, count in kv.faults.items():
        faults.add_metric([kind], count)
    yield faults
    moved = CounterMetricFamily("saltway_worker_moved_blocks", "KV blocks moved between tiers", labels=["move"])
    for move in ("offloaded", "written", "promoted", "lost"):
        moved.add_metric([move], getattr(kv, move))
    yield moved
    yield from _of_leases(kv.leases)


def _of_leases(tallies: Mapping[str, Tally]) -> Iterator[Metric]:
    outcomes = CounterMetricFamily("saltway_worker_leases", "Leases on blocks by outcome", labels=["tag", "outcome"])
    refused = CounterMetricFamily("saltway_worker_leases_refused", "Leases beyond a budget", labels=["tag", "tier"])
    leased = GaugeMetricFamily("saltway_worker_leased_blocks", "Blocks under lease", labels=["tag", "tier"])
    for tag, tally in tallies.items():
        _add_tiers(refused, tally.refused, tag)
        _add_tiers(leased, tally.leased, tag)
        for outcome in ("granted", "kept", "displaced", "broken"):
            outcomes.add_metric([tag, outcome], getattr(tally, outcome))
    yield outcomes
    yield refused
    yield leased


def _add_tiers(family: CounterMetricFamily | GaugeMetricFamily, values: Sequence[int], *labels: str) -> None:
    for tier, value in zip(_TIERS, values, strict=True):
        family.add_metric([*labels, tier], value)


def registry_of(collector: EngineCollector) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(collector)
    return registry
