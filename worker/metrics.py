"""The worker's figures for Prometheus, read from the engine when they are asked for."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from worker.engine import Engine
from worker.kv.figures import KVFigures


class EngineCollector(Collector):
    """kv: what the engine's thread said of its memory last; set before each scrape, since only that thread may look."""

    def __init__(self, engine: Engine) -> None:
        self.kv: KVFigures | None = None
        self._engine = engine

    def collect(self) -> Iterator[Metric]:
        counters, load = self._engine.counters, self._engine.load
        yield CounterMetricFamily("saltway_worker_steps", "Engine steps", counters.steps)
        yield CounterMetricFamily("saltway_worker_requests", "Requests taken", counters.requests)
        yield CounterMetricFamily("saltway_worker_aborted", "Requests aborted", counters.aborted)
        yield CounterMetricFamily("saltway_worker_prompt_tokens", "Prompt tokens asked for", counters.prompt_tokens)
        yield CounterMetricFamily("saltway_worker_cached_tokens", "Prompt tokens reused", self._engine.cached_tokens)
        yield CounterMetricFamily("saltway_worker_generated_tokens", "Tokens generated", counters.generated_tokens)
        yield CounterMetricFamily("saltway_worker_drafted_tokens", "Draft tokens computed", counters.drafted_tokens)
        yield CounterMetricFamily("saltway_worker_accepted_tokens", "Draft tokens accepted", counters.accepted_tokens)
        yield GaugeMetricFamily("saltway_worker_waiting", "Sequences that wait for a slot", load.waiting)
        yield GaugeMetricFamily("saltway_worker_running", "Sequences that hold a slot", load.running)
        yield GaugeMetricFamily("saltway_worker_free_blocks", "KV blocks free", load.free_blocks)
        yield GaugeMetricFamily("saltway_worker_blocks", "KV blocks in all", self._engine.total_blocks)
        yield GaugeMetricFamily("saltway_worker_prefill_tps", "Prefill tokens per second", counters.prefill_tps)
        yield GaugeMetricFamily("saltway_worker_decode_step_ms", "Decode step, in ms", counters.decode_step_ms)
        if self.kv is not None:
            yield from _of_memory(self.kv)


def _of_memory(kv: KVFigures) -> Iterator[Metric]:
    yield GaugeMetricFamily("saltway_worker_host_blocks", "KV blocks in host memory", kv.host_blocks)
    yield GaugeMetricFamily("saltway_worker_disk_blocks", "KV blocks on disk", kv.disk_blocks)
    moved = CounterMetricFamily("saltway_worker_moved_blocks", "KV blocks moved between tiers", labels=["move"])
    for move in ("offloaded", "written", "promoted", "lost"):
        moved.add_metric([move], getattr(kv, move))
    yield moved
    leases = CounterMetricFamily("saltway_worker_leases", "Leases on blocks by outcome", labels=["tag", "outcome"])
    leased = GaugeMetricFamily("saltway_worker_leased_blocks", "Blocks under lease", labels=["tag"])
    for tag, tally in kv.leases.items():
        leased.add_metric([tag], tally.leased)
        for outcome in ("granted", "refused", "kept", "broken"):
            leases.add_metric([tag, outcome], getattr(tally, outcome))
    yield leases
    yield leased


def registry_of(collector: EngineCollector) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(collector)
    return registry
