"""The workers as the gateway knows them: a link to each address, and the models that they serve together."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from types import TracebackType
from typing import Any, Self

import msgspec
from structlog.typing import FilteringBoundLogger

from cacheplane.attribution import Departures
from cacheplane.breaker import Breaker
from cacheplane.fleet import Fleet
from cacheplane.index import PrefixIndex
from cacheplane.parity import Record
from cacheplane.placement import Placement
from cacheplane.report import Occupancy
from cacheplane.tally import Mode
from cacheplane.worker import Worker
from gateway.errors import NotFoundError, UnavailableError
from gateway.link import HEARTBEAT_SECONDS, WorkerLink
from gateway.logs import get_logger
from gateway.render import Renderer, RendererModel
from gateway.served import ServedModel
from gateway.worker_wire import ModelInfo
from gateway.workers import WorkerClient, WorkerSession

RETRY = {"retry-after": "1"}
UNREACHED = "unreached"
JOIN_SECONDS = 10.0  # that a gateway waits for the snapshots of all ready workers; one may give none
SNAPSHOTS_AT_ONCE = 4  # of a fleet, so that joining it does not fill the memory and the wire


class WorkerView(msgspec.Struct, frozen=True, kw_only=True):
    """One worker address for an operator; counts of blocks, tokens and requests.

    state               of the fleet's, or "unreached" while no worker was met at the address
    stream              phase of its event stream
    waiting, running    and the rest of its load: the worker's own figures, 0 for what it does not say
    queued_tokens       prompt tokens before a new request there, as placement sees it
    known_prefill_tps   its own figure, or what was learned from times to first tokens, 0 while neither is known
    circuit             "closed", "open" (requests kept failing) or "half-open" (one may try); failed_requests in all
    decisions           by mode since it joined; blind are those not made from its whole event stream
    predicted_tokens    and delivered: sums over finished requests; they differ where the index is wrong
    parity              "trusted", or "suspended": its predictions were wrong, so they do not weigh in placement
    """

    url: str
    id: str
    state: str
    error: str | None
    model: str
    fingerprint: str
    epoch: int
    stream: str
    synced: bool
    stream_counters: dict[str, int]
    waiting: int
    running: int
    free_blocks: int
    total_blocks: int
    prefill_tps: float
    decode_step_ms: float
    queued_tokens: int
    known_prefill_tps: float
    circuit: str
    failed_requests: int
    decisions: dict[Mode, int]
    index_blocks: int
    finished_requests: int
    predicted_tokens: int
    delivered_tokens: int
    parity_mismatches: int
    parity: str
    parity_suspensions: int

    @property
    def name(self) -> str:
        """A label for metrics: the worker's id, or its address before it has one."""
        return self.id or self.url


class Cluster:
    """Follows every worker address while entered; answers who can serve what.

    clock    seconds, monotonic; the same that placement uses
    """

    def __init__(
        self,
        session: WorkerSession,
        urls: Sequence[str],
        fleet: Fleet,
        index: PrefixIndex,
        departures: Departures,
        placement: Placement,
        heartbeat_seconds: float = HEARTBEAT_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fleet = fleet
        self._index = index
        self._placement = placement
        self._clock = clock
        self._models: dict[tuple[str, str], ServedModel] = {}
        permits = asyncio.Semaphore(SNAPSHOTS_AT_ONCE)
        self._links = [
            WorkerLink(
                session.client(url), fleet, index, departures, placement, self._prepare, heartbeat_seconds, permits
            )
            for url in urls
        ]
        self._tasks: list[asyncio.Task[None]] = []
        self._joins_until = 0.0
        self._log: FilteringBoundLogger = get_logger("cluster")

    async def __aenter__(self) -> Self:
        self._joins_until = self._clock() + JOIN_SECONDS
        self._tasks = [asyncio.create_task(link.run(), name=f"link-{link.client.url}") for link in self._links]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def model(self, name: str) -> ServedModel:
        """What requests for `name` are rendered for. NotFoundError, or UnavailableError while no worker is ready."""
        ready = self._fleet.ready(name, self._clock())
        if ready:
            return self._models[name, ready[0].fingerprint]
        if self._models and name not in {model for model, _ in self._models}:
            raise NotFoundError("There is no model of that name here.", param="model", code="model_not_found")
        raise UnavailableError(
            "No worker is ready for this model yet; try again shortly.", code="starting", headers=RETRY
        )

    def models(self) -> list[ServedModel]:
        """One per name: what requests are rendered for now, or would be when its workers are back."""
        chosen: dict[str, ServedModel] = {}
        for (name, fingerprint), served in self._models.items():
            ready = self._fleet.ready(name, self._clock())
            if name not in chosen or (ready and ready[0].fingerprint == fingerprint):
                chosen[name] = served
        return [chosen[name] for name in sorted(chosen)]

    def client(self, worker_id: str) -> WorkerClient | None:
        """None when the worker has left in the meantime."""
        return next((link.client for link in self._links if link.worker_id == worker_id), None)

    def clients(self) -> dict[str, WorkerClient]:
        """Of the workers that were met and have not left, by id."""
        return {link.worker_id: link.client for link in self._links if link.worker_id is not None}

    def failed(self, worker_id: str) -> None:
        """A request failed there. No more of them until its next good heartbeat."""
        self._fleet.failed(worker_id, self._clock())

    def refresh(self, worker_id: str, occupancy: Occupancy) -> None:
        """A request has ended there, and the worker said what it has left to do."""
        self._fleet.refresh(worker_id, occupancy, self._clock())

    @property
    def ready(self) -> bool:
        """Somebody can be served, and by what the index knows: one ready worker whose snapshot is in, and while this
        gateway joins, those of all, for what the others hold would be decided blind."""
        now = self._clock()
        if now < self._joins_until and any(link.pending for link in self._links):
            return False
        names = {link.info.name for link in self._links if link.info is not None and link.synced}
        synced = {link.worker_id for link in self._links if link.synced}
        return any(worker.id in synced for name in names for worker in self._fleet.ready(name, now))

    def views(self) -> list[WorkerView]:
        """Every configured address, in order."""
        now = self._clock()
        workers = {worker.id: worker for worker in self._fleet.workers(now)}
        return [self._view(link, workers, now) for link in self._links]

    def _view(self, link: WorkerLink, workers: Mapping[str, Worker], now: float) -> WorkerView:
        info, load, subscriber = link.info, link.load, link.subscriber
        worker_id = info.worker_id if info else ""
        worker, record = workers.get(worker_id), self._placement.parity.of(worker_id)
        return WorkerView(
            url=link.client.url,
            id=worker_id,
            state=worker.state.value if worker else UNREACHED,
            error=link.error,
            model=info.name if info else "",
            fingerprint=info.fingerprint if info else "",
            epoch=info.epoch if info else 0,
            stream=subscriber.state.phase.value if subscriber else "none",
            synced=link.synced,
            stream_counters=asdict(subscriber.counters) if subscriber else {},
            waiting=load.waiting if load else 0,
            running=load.running if load else 0,
            free_blocks=load.free_blocks if load else 0,
            total_blocks=load.total_blocks if load else 0,
            prefill_tps=load.prefill_tps if load else 0.0,
            decode_step_ms=load.decode_step_ms if load else 0.0,
            queued_tokens=round(self._fleet.queued_tokens(worker_id, now)) if worker else 0,
            known_prefill_tps=worker.prefill_tps if worker else 0.0,
            circuit=(worker.breaker if worker else Breaker()).circuit(now).value,
            failed_requests=worker.failures if worker else 0,
            decisions=dict(self._placement.tally.of(worker_id)),
            index_blocks=self._index.blocks(worker_id) if info else 0,
            **_reuse(record),
        )

    async def _prepare(self, info: ModelInfo) -> None:
        """Make the renderer of a model that is new; off the loop, for a tokenizer takes a while to load."""
        key = (info.name, info.fingerprint)
        if key not in self._models:
            renderer = await asyncio.to_thread(_renderer, info)
            self._models[key] = ServedModel(info, renderer)
            self._log.info("model", model=info.name, template=renderer.template_name, fingerprint=info.fingerprint)
        linked = {(link.info.name, link.info.fingerprint) for link in self._links if link.info is not None} | {key}
        for former in self._models.keys() - linked:
            del self._models[former]


def _reuse(record: Record) -> dict[str, Any]:
    """What was predicted and delivered on a worker, and whether it is believed, by the names of its view."""
    return {
        "finished_requests": record.requests,
        "predicted_tokens": record.predicted,
        "delivered_tokens": record.delivered,
        "parity_mismatches": record.mismatches,
        "parity": record.verdict.value,
        "parity_suspensions": record.suspensions,
    }


def _renderer(info: ModelInfo) -> Renderer:
    """Raises ValueError when the worker's tokenizer or template cannot be used."""
    model = RendererModel(
        tokenizer=info.tokenizer,
        chat_template=info.chat_template,
        special_tokens=info.special_tokens,
        bos_id=info.bos_id,
        eos_id=info.eos_id,
    )
    try:
        return Renderer(model)
    except Exception as error:  # the tokenizer library raises Exception itself
        raise ValueError(f"its tokenizer or template cannot be used: {str(error)[:200]}") from error
