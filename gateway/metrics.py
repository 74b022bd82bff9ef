"""Prometheus metrics, in a registry of our own, with a bounded number of label values."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Literal, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from cacheplane.attribution import Misses
from cacheplane.breaker import Circuit
from cacheplane.parity import Verdict
from cacheplane.worker import WorkerState
from gateway.cluster import WorkerView
from gateway.exchange import Exchange

MAX_TENANTS = 200
MAX_TEMPLATES = 500
OTHER = "other"
TTFT_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
OVERHEAD_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1.0)
Label = TypeVar("Label", str, tuple[str, str])
WORKER_STATES = tuple(state.value for state in WorkerState)
CIRCUITS = tuple(circuit.value for circuit in Circuit)
VERDICTS = tuple(verdict.value for verdict in Verdict)
STREAM_STATES = ("initial", "live", "gap", "stale", "rewind")


class Labels:
    """The first MAX_TENANTS tenants by name, the others together: a label must not grow with the customers.

    Of templates, which belong to tenants, the first MAX_TEMPLATES of all tenants together.
    """

    def __init__(self, tenants: int = MAX_TENANTS, templates: int = MAX_TEMPLATES) -> None:
        self._tenants: set[str] = set()
        self._templates: set[tuple[str, str]] = set()
        self._limits = tenants, templates

    def tenant(self, tenant_id: str) -> str:
        return tenant_id if _admitted(tenant_id, self._tenants, self._limits[0]) else OTHER

    def template(self, tenant_id: str, template: str) -> tuple[str, str]:
        """The tenant's label and the template's."""
        tenant = self.tenant(tenant_id)
        known = tenant != OTHER and _admitted((tenant, template), self._templates, self._limits[1])
        return tenant, template if known else OTHER


def _admitted(value: Label, seen: set[Label], limit: int) -> bool:
    if value not in seen and len(seen) < limit:
        seen.add(value)
    return value in seen


class Metrics:
    """Counters of settled requests, and gauges read from the cluster whenever somebody asks.

    in_flight   -> requests between authentication and settlement, now
    workers     -> the fleet as it is now
    isolated    -> prompt tokens by model that another tenant had sent before, see `cacheplane.attribution`
    blind       -> share of placement decisions that were not made from a whole event stream, since the start
    """

    def __init__(
        self,
        in_flight: Callable[[], int],
        workers: Callable[[], Iterable[WorkerView]],
        isolated: Callable[[], Mapping[str, int]],
        blind: Callable[[], float],
    ) -> None:
        self.registry = CollectorRegistry()
        self._labels = Labels()
        self._requests = _RequestCounters(self.registry)
        self._reuse = _ReuseCounters(self.registry)
        self._kept = _LeaseCounters(self.registry)
        blind_share = "Placement decisions not made from a whole event stream, of all so far."
        self._gauge("in_flight_requests", "Requests in flight.", in_flight)
        self._gauge("blind_decision_share", blind_share, blind)
        self._gauge("tasks", "asyncio tasks of the process.", _tasks)
        self.registry.register(_FleetCollector(workers))
        self.registry.register(_IsolationCollector(isolated))

    def _gauge(self, name: str, meaning: str, value: Callable[[], float]) -> None:
        Gauge(f"saltway_{name}", meaning, registry=self.registry).set_function(value)

    def settled(self, exchange: Exchange) -> None:
        self._requests.settled(exchange, self._labels.tenant(exchange.tenant_id))
        if exchange.misses is not None:
            labels = self._labels.template(exchange.tenant_id, exchange.template)
            self._reuse.attributed(exchange, exchange.misses, labels)

    def checked(self, *, valid: bool) -> None:
        """The outputs of a reply were judged by the schemas that they were made under."""
        self._requests.checked.labels("valid" if valid else "violated").inc()

    def leased(self, source: str, outcome: Literal["taken", "failed"]) -> None:
        """A conversation was put under a lease, or should have been."""
        self._kept.leases.labels(source, outcome).inc()

    def ended(self, told: int, failed: int) -> None:
        """A client has ended a session with so many leases."""
        self._kept.ends.labels("told").inc(told)
        self._kept.ends.labels("failed").inc(failed)

    def text(self) -> bytes:
        """The exposition in Prometheus' text format, version 0.0.4."""
        return generate_latest(self.registry)


class _RequestCounters:
    """How requests ended, what they used, and how long they took."""

    def __init__(self, registry: CollectorRegistry) -> None:
        ended = "Settled requests; 499 is a client that left before its reply was whole."
        used = "Tokens of settled requests: prompt, cached (delivered), predicted, completion."
        placed = "Placed requests, by what placement knew of the caches and why it chose."
        resumed = "Answers that another worker went on with after one had failed."
        judged = "Replies under a schema, judged once more: valid, violated."
        self._requests = _counter(registry, "requests", ended, "tenant model status")
        self._tokens = _counter(registry, "tokens", used, "tenant kind")
        self._placements = _counter(registry, "placements", placed, "mode reason")
        self._retries = _counter(registry, "retries", "Dispatches beyond a request's first.")
        self._resumed = _counter(registry, "resumed", resumed)
        self.checked = _counter(registry, "checked_outputs", judged, "verdict")
        self._ttft = _histogram(registry, "ttft", "From arrival to first token.", TTFT_SECONDS)
        own = "The gateway's own time before the headers."
        self._overhead = _histogram(registry, "overhead", own, OVERHEAD_SECONDS)

    def settled(self, exchange: Exchange, tenant: str) -> None:
        self._requests.labels(tenant, exchange.model or "unknown", str(exchange.status)).inc()
        self._tokens.labels(tenant, "prompt").inc(exchange.prompt_tokens)
        self._tokens.labels(tenant, "cached").inc(exchange.cached_tokens)
        self._tokens.labels(tenant, "predicted").inc(exchange.predicted_tokens)
        self._tokens.labels(tenant, "completion").inc(exchange.completion_tokens)
        if exchange.placement_mode:
            self._placements.labels(exchange.placement_mode, exchange.placement_reason).inc()
        self._retries.inc(max(0, exchange.attempts - 1))
        self._resumed.inc(exchange.resumed)
        if exchange.ttft_ms is not None:
            self._ttft.observe(exchange.ttft_ms / 1000.0)
        if exchange.overhead_ms is not None:
            self._overhead.observe(exchange.overhead_ms / 1000.0)


class _ReuseCounters:
    """Of the prompts that a worker has begun: what was reused of them, and why the rest was not."""

    def __init__(self, registry: CollectorRegistry) -> None:
        stages = "Prompt tokens: all, available somewhere, routed (on the chosen worker), delivered by it."
        missed = "Prompt tokens that were not reused, each with one reason."
        self._reuse = _counter(registry, "reuse_tokens", stages, "tenant template stage")
        self._missed = _counter(registry, "missed_tokens", missed, "tenant template reason")

    def attributed(self, exchange: Exchange, misses: Misses, labels: tuple[str, str]) -> None:
        """labels: of the tenant and the template"""
        self._reuse.labels(*labels, "prompt").inc(exchange.prompt_tokens)
        self._reuse.labels(*labels, "available").inc(exchange.available_tokens)
        self._reuse.labels(*labels, "routed").inc(exchange.predicted_tokens)
        self._reuse.labels(*labels, "delivered").inc(exchange.cached_tokens)
        for reason, tokens in misses.tokens.items():
            self._missed.labels(*labels, reason.value).inc(tokens)


class _LeaseCounters:
    """What was asked of workers to be kept, and to be kept no longer."""

    def __init__(self, registry: CollectorRegistry) -> None:
        asked = "Leases on conversations that were answered, by who asked (request, openai, policy, tool_wait)."
        ended = "Leases of sessions that clients have ended, by whether a worker was told."
        self.leases = _counter(registry, "leases", asked, "source outcome")
        self.ends = _counter(registry, "session_ends", ended, "outcome")


def _counter(registry: CollectorRegistry, name: str, meaning: str, labels: str = "") -> Counter:
    return Counter(f"saltway_{name}_total", meaning, labels.split(), registry=registry)


def _histogram(registry: CollectorRegistry, name: str, meaning: str, buckets: tuple[float, ...]) -> Histogram:
    return Histogram(f"saltway_{name}_seconds", meaning, buckets=buckets, registry=registry)


class _FleetCollector(Collector):
    """Reads the fleet at scrape time, so that a worker that is gone leaves no stale series behind."""

    def __init__(self, workers: Callable[[], Iterable[WorkerView]]) -> None:
        self._workers = workers

    def collect(self) -> Iterator[Metric]:
        views = list(self._workers())
        yield _one_hot("saltway_worker_state", "state", WORKER_STATES, [(view.name, view.state) for view in views])
        yield _one_hot("saltway_stream_state", "state", STREAM_STATES, [(view.name, view.stream) for view in views])
        yield _one_hot("saltway_worker_circuit", "state", CIRCUITS, [(view.name, view.circuit) for view in views])
        yield _one_hot("saltway_worker_parity", "state", VERDICTS, [(view.name, view.parity) for view in views])
        yield _gauge(
            "saltway_worker_queued_tokens",
            "Prompt tokens before a new request, as placement sees it.",
            [(v.name, v.queued_tokens) for v in views],
        )
        yield _gauge("saltway_index_blocks", "Blocks in the prefix index.", [(v.name, v.index_blocks) for v in views])
        yield _gauge("saltway_worker_waiting", "Requests queued there.", [(v.name, v.waiting) for v in views])
        yield _gauge("saltway_worker_running", "Requests running there.", [(v.name, v.running) for v in views])
        yield _gauge("saltway_worker_free_blocks", "Free KV blocks.", [(v.name, v.free_blocks) for v in views])
        family = CounterMetricFamily(
            "saltway_event_stream", "What the event subscriber counted.", labels=["worker", "event"]
        )
        for view in views:
            for event, value in view.stream_counters.items():
                family.add_metric([view.name, event], value)
        yield family


class _IsolationCollector(Collector):
    """What isolation costs: known to operators only, and for all tenants of a model together."""

    def __init__(self, isolated: Callable[[], Mapping[str, int]]) -> None:
        self._isolated = isolated

    def collect(self) -> Iterator[Metric]:
        meaning = "Prompt tokens that were computed though another tenant had sent them before."
        family = CounterMetricFamily("saltway_tenant_isolated_tokens", meaning, labels=["model"])
        for model, tokens in self._isolated().items():
            family.add_metric([model], tokens)
        yield family


def _tasks() -> int:
    try:
        return len(asyncio.all_tasks())
    except RuntimeError:
        return 0  # asked from outside a loop, as in a test


def _gauge(name: str, help_text: str, samples: Iterable[tuple[str, float]]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, help_text, labels=["worker"])
    for worker, value in samples:
        family.add_metric([worker], value)
    return family


def _one_hot(name: str, label: str, states: Iterable[str], samples: list[tuple[str, str]]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, "1 for the state that the worker is in.", labels=["worker", label])
    for worker, current in samples:
        for state in states:
            family.add_metric([worker, state], 1.0 if state == current else 0.0)
    return family
