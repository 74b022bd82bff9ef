"""The worker's figures for Prometheus, read from the engine when they are asked for."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from worker.engine import Engine


class _EngineCollector(Collector):
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def collect(self) -> Iterator[Metric]:
        counters, load = self._engine.counters, self._engine.load
        yield CounterMetricFamily("saltway_worker_steps", "Engine steps", counters.steps)
        yield CounterMetricFamily("saltway_worker_requests", "Requests taken", counters.requests)
        yield CounterMetricFamily("saltway_worker_aborted", "Requests aborted", counters.aborted)
        yield CounterMetricFamily("saltway_worker_prompt_tokens", "Prompt tokens asked for", counters.prompt_tokens)
        yield CounterMetricFamily("saltway_worker_cached_tokens", "Prompt tokens reused", self._engine.cached_tokens)
        yield CounterMetricFamily("saltway_worker_generated_tokens", "Tokens sampled", counters.generated_tokens)
        yield GaugeMetricFamily("saltway_worker_waiting", "Sequences that wait for a slot", load.waiting)
        yield GaugeMetricFamily("saltway_worker_running", "Sequences that hold a slot", load.running)
        yield GaugeMetricFamily("saltway_worker_free_blocks", "KV blocks free", load.free_blocks)
        yield GaugeMetricFamily("saltway_worker_blocks", "KV blocks in all", self._engine.total_blocks)
        yield GaugeMetricFamily("saltway_worker_prefill_tps", "Prefill tokens per second", counters.prefill_tps)
        yield GaugeMetricFamily("saltway_worker_decode_step_ms", "Decode step, in ms", counters.decode_step_ms)


def registry_of(engine: Engine) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(_EngineCollector(engine))
    return registry
